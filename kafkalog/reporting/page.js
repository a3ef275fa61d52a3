"use strict";
// All values are set as text, never as markup.
const source = document.getElementById("data");
const data = JSON.parse(source.textContent);
const step = Number(source.dataset.step);
const numeric = new Set(source.dataset.numeric.split(" "));
const time = (value) => {
  const date = new Date(value);
  return value === -1 ? "-" : isNaN(date) ? `${value}ms` : date.toISOString().replace(/\.\d+Z/, "Z").replace(/^\+0*/, "");
};
const one = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
const text = (value, kind) => {
  if (value === null) return "";
  if (value === true) return "yes";
  if (value === false) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (kind === "time") return time(value);
  if (kind === "share") return `${(value * 100).toFixed(1)}%`;
  if (kind === "decimal") return value.toLocaleString("en-US", one);
  return typeof value === "number" ? value.toLocaleString("en-US") : value;
};
for (const [name, table] of Object.entries(data)) {
  const section = document.getElementById(name);
  const body = section.querySelector("tbody");
  const heads = [...section.querySelectorAll("th")];
  const names = heads.map((head) => head.textContent);
  const nameCells = (line) => [...line.cells].forEach((cell, column) => { cell.dataset.name = names[column]; });
  const more = section.querySelector(".more");
  let rows = table.rows, shown = table.first ?? step, sorted = -1, rising = true;
  const show = () => {
    body.replaceChildren(...rows.slice(0, shown).map((row) => {
      const line = document.createElement("tr");
      if (table.bad !== null && row[table.bad[0]] !== null && table.bad[1].includes(row[table.bad[0]])) line.className = "bad";
      row.forEach((value, column) => {
        const cell = document.createElement("td");
        cell.textContent = text(value, table.kinds[column]);
        cell.className = numeric.has(table.kinds[column]) ? "n" : cell.textContent.length > 40 ? "long" : "";
        line.append(cell);
      });
      nameCells(line);
      return line;
    }));
    more.hidden = rows.length <= shown;
    const what = shown < step ? "healthy" : "more rows";
    more.textContent = `${(rows.length - shown).toLocaleString("en-US")} ${what}`;
  };
  const update = (wanted) => {
    rows = table.rows.filter((row) => row.some((value, column) => text(value, table.kinds[column]).toLowerCase().includes(wanted)));
    if (sorted >= 0) {
      const compare = (a, b) => {
        if (a === null || b === null) return (a === null) - (b === null);
        const order = typeof a === "string" ? a.localeCompare(b) : Array.isArray(a) ? String(a).localeCompare(String(b)) : a - b;
        return rising ? order : -order;
      };
      rows.sort((a, b) => compare(a[sorted], b[sorted]));
    }
    shown = step;
    show();
  };
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Search";
  search.setAttribute("aria-label", `Search ${section.querySelector("h2").textContent}`);
  search.addEventListener("input", () => update(search.value.toLowerCase()));
  section.querySelector(".wide").before(search);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      rising = sorted === column ? !rising : !numeric.has(table.kinds[column]);
      sorted = column;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      update(search.value.toLowerCase());
    });
    head.replaceChildren(button);
  });
  more.addEventListener("click", () => { shown = shown < step ? step : shown + 10 * step; show(); });
  section.querySelector("table").className = "named";
  [...body.rows].forEach(nameCells);
  if (table.first !== null) show();
  more.hidden = rows.length <= shown;
}
