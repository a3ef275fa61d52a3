"""Made-up fields of messages."""

from kafkalog.protocol.definitions import MessageField, Versions

NONE = Versions(0, -1)


def made_up(fields, version, rng):
    """Random values of fields; those that the version lacks have their default."""
    values = {}
    for field in fields:
        is_there = version in field.versions or version in field.tagged
        tagged_away = version in field.tagged and rng.random() < 0.5
        values[field.name] = _some(field, version, rng) if is_there and not tagged_away else field.default
    return values


def _some(field, version, rng):
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.type.startswith("[]"):
        item = MessageField(field.name, field.type[2:], field.versions, NONE, NONE, -1, None, field.fields)
        return [_some(item, version, rng) for _ in range(rng.randint(0, 3))]
    if field.type == "struct":
        return made_up(field.fields, version, rng)
    if field.type == "string":
        return rng.choice(("", "x", "käse", "long" * 40))
    if field.type == "bytes":
        return rng.randbytes(rng.randint(0, 200))
    if field.type == "uuid":
        return rng.choice(("A" * 22, "RxLbS2aoRLmJ9xc1exUYuQ"))
    if field.type == "bool":
        return rng.random() < 0.5
    if field.type == "float64":
        return rng.random()
    bits = int(field.type.removeprefix("u").removeprefix("int"))
    return rng.getrandbits(bits - 1) * (1 if field.type.startswith("u") else rng.choice((1, -1)))
