"""Random Protobuf schemas with values: as Google's library writes them, and as decoded columns show them."""

import json
import random
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALARS = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes"
KEYS = ("int32", "int64", "uint32", "sint64", "fixed32", "bool", "string")
WELL_KNOWN = ("Timestamp", "Int64Value", "StringValue", "BoolValue", "DoubleValue", "BytesValue")
IMPORTS = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";\n'


def compiled(files):
    """What protoc makes of some files and all that they import."""
    import grpc_tools
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        own = Path(grpc_tools.__file__).parent / "_proto"
        out = Path(folder) / "out"
        names = ["--include_imports", f"--descriptor_set_out={out}", *files]
        assert protoc.main(["protoc", f"-I{folder}", f"-I{own}", *names]) == 0
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def pool_of(files):
    """Descriptors that know one another."""
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return pool


class ProtoCase:
    """A random schema in two files, of which the first imports the second; `root` is a message of the first."""

    def __init__(self, seed, *, has_maps=True):
        self.random = random.Random(seed)
        self._has_maps = has_maps
        self.is_proto2 = self.random.random() < 0.4
        self._n_names = 0
        other = self._file("other", [])
        names = [f"other.M{self._n_names - 1}"] if "message" in other else []
        self.files = {f"t{seed}/main.proto": "", f"t{seed}/other.proto": other}
        main = self._file("main.pkg", names)
        first, *rest = main.split("\n", 1)
        self.files[f"t{seed}/main.proto"] = f'{first}\nimport "t{seed}/other.proto";\n{rest[0]}'
        self.descriptors = compiled(self.files)
        self.pool = pool_of(self.descriptors)
        file = self.pool.FindFileByName(f"t{seed}/main.proto")
        found = self.random.choice(list(file.message_types_by_name.values()))
        while (inner := [one for one in found.nested_types if not one.GetOptions().map_entry]) and (
            self.random.random() < 0.5
        ):
            found = self.random.choice(inner)
        self.descriptor = found
        self.root = message_factory.GetMessageClass(found)

    def _file(self, package, others):
        syntax = "proto2" if self.is_proto2 else "proto3"
        text = f'syntax = "{syntax}"; // a comment\n{IMPORTS}package {package};\n'
        known = [*others]
        for _ in range(self.random.randrange(1, 4)):
            text += self._message(known, 3) + "\n"
            known.append(f"M{self._n_names - 1}")
        return text

    def _message(self, known, depth):
        rng = self.random
        inner, names = "", [*known]
        if rng.random() < 0.5:
            self._n_names += 1
            number = self._n_names
            inner += (
                f"  enum E{number} {{ A{number} = 0; B{number} = 1; /* skips */ C{number} = 7; D{number} = -3; }}\n"
            )
            names.append(f"enum E{number}")
        while depth > 0 and rng.random() < 0.4:
            inner += self._message(known, depth - 1)
            names.append(f"M{self._n_names - 1}")
        numbers = rng.sample(range(1, 40), 20)
        fields = [self._field(names, numbers, depth) for _ in range(rng.randrange(0, 7))]
        if rng.random() < 0.5:
            members = [
                f"    {self._type(names)} o{numbers[-1]} = {numbers.pop()};\n" for _ in range(rng.randrange(1, 4))
            ]
            fields.append(f"  oneof choice {{\n{''.join(members)}  }}\n")
        self._n_names += 1
        return f"message M{self._n_names - 1} {{\n{inner}{''.join(fields)}}}\n"

    def _type(self, names):
        rng = self.random
        if names and rng.random() < 0.3:
            return rng.choice(names).removeprefix("enum ")
        if rng.random() < 0.2:
            return f"google.protobuf.{rng.choice(WELL_KNOWN)}"
        return rng.choice(SCALARS.split())

    def _field(self, names, numbers, depth):
        rng = self.random
        number = numbers.pop()
        kind = self._type(names)
        if self._has_maps and rng.random() < 0.15:
            return f"  map<{rng.choice(KEYS)}, {kind}> m{number} = {number};\n"
        if self._has_maps and self.is_proto2 and depth > 0 and rng.random() < 0.15:
            label = rng.choice(["optional", "repeated"])
            inner = f"optional int32 i{number} = 1; repeated string s{number} = 2;"
            return f"  {label} group Group{number} = {number} {{ {inner} }}\n"
        label = rng.choice(["optional", "repeated", "optional" if self.is_proto2 else ""])
        is_number = kind in SCALARS.split()[:-2]
        packed = f" [packed = {rng.choice(['true', 'false'])}]" if label == "repeated" and is_number else ""
        return f"  {label} {kind} f{number} = {number}{packed};\n"

    def value(self):
        """A message, and the same as a decoded column shows it."""
        message = self.root()
        self.fill(message, 0)
        return message, shown(message)

    def fill(self, message, depth):
        """Set some fields."""
        rng = self.random
        if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
            message.seconds, message.nanos = rng.randrange(-(10**9), 9 * 10**9), rng.choice([0, 5000, 999_999_000])
            return
        for one in message.DESCRIPTOR.fields:
            if rng.random() < (0.3 + 0.1 * depth):
                continue
            inner = one.message_type
            if is_map(one):
                values = inner.fields_by_name["value"]
                for _ in range(rng.randrange(3)):
                    key = self._scalar(inner.fields_by_name["key"])
                    if values.message_type is None:
                        getattr(message, one.name)[key] = self._scalar(values)
                    else:
                        self.fill(getattr(message, one.name)[key], depth + 1)
            elif one.is_repeated:
                for _ in range(rng.randrange(4)):
                    if inner is None:
                        getattr(message, one.name).append(self._scalar(one))
                    else:
                        self.fill(getattr(message, one.name).add(), depth + 1)
            elif inner is None:
                setattr(message, one.name, self._scalar(one))
            else:
                getattr(message, one.name).SetInParent()
                self.fill(getattr(message, one.name), depth + 1)

    def _scalar(self, one):
        rng = self.random
        if one.enum_type is not None:
            numbers = [value.number for value in one.enum_type.values]
            return rng.choice(numbers if one.enum_type.is_closed else [*numbers, 5, -9])
        kind = SCALAR_NAMES[one.type]
        if kind in ("double", "float"):
            return rng.choice([0.0, 1.5, -(2.0**40), float("inf")])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "string":
            return rng.choice(["", "x", "käse", "\U0001f9c0", "a longer text than eight bytes"])
        if kind == "bytes":
            return rng.randbytes(rng.randrange(6))
        bits = 32 if kind.endswith("32") else 64
        if kind.startswith(("u", "f")):
            return rng.choice([0, 1, 127, 128, 2**bits - 1])
        return rng.choice([0, 1, -1, 300, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])


SCALAR_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


def is_map(one):
    return bool(one.is_repeated and one.message_type is not None and one.message_type.GetOptions().map_entry)


def shown(message):
    """A message as a decoded column shows it; the entries of maps by their keys."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return message.value
    found = {}
    for one in message.DESCRIPTOR.fields:
        value = getattr(message, one.name)
        enum = one.enum_type
        if is_map(one):
            enum = one.message_type.fields_by_name["value"].enum_type
            found[one.name] = sorted((key, _item(value[key], enum)) for key in value)
        elif one.is_repeated:
            found[one.name] = [_item(item, enum) for item in value]
        elif one.has_presence and not message.HasField(one.name):
            found[one.name] = None
        else:
            found[one.name] = _item(value, enum)
    return found


def _item(value, enum):
    if enum is not None:
        return enum_names(enum).get(value, str(value))
    return shown(value) if hasattr(value, "DESCRIPTOR") else value


@cache
def enum_names(enum):
    names = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def sorted_maps(value):
    """A decoded value with the entries of maps in the order of their keys, and times as `shown` has them."""
    if isinstance(value, dict):
        return {name: sorted_maps(one) for name, one in value.items()}
    if isinstance(value, list):
        items = [sorted_maps(one) for one in value]
        return sorted(items) if items and isinstance(items[0], tuple) else items
    if isinstance(value, tuple):
        return tuple(sorted_maps(one) for one in value)
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    return value


def canonical(value):
    """A value for comparison."""
    return json.dumps(sorted_maps(value), default=str, sort_keys=True)
