# SPDX-License-Identifier: Apache-2.0
"""Structural OpenAPI v3 schemas from wire structs, for CustomResourceDefinitions.

Called by `crds` alone: no process loads the inspection of types at run time.
"""

from __future__ import annotations

from typing import Any

import msgspec
import msgspec.inspect

from gpudeck.errors import UnsupportedError

Schema = dict[str, Any]

_SCALARS: dict[type[msgspec.inspect.Type], Schema] = {
    msgspec.inspect.StrType: {"type": "string"},
    msgspec.inspect.BoolType: {"type": "boolean"},
    msgspec.inspect.IntType: {"type": "integer", "format": "int64"},
}


def properties(kind: type[msgspec.Struct]) -> Schema:
    """Return the schemas of an object's own fields, without its metadata.

    Raises UnsupportedError for a type that a structural schema cannot say.
    """
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {
        field.encode_name: _schema(field.type)
        for field in info.fields
        if field.encode_name != "metadata"
    }


def _schema(kind: msgspec.inspect.Type) -> Schema:
    if isinstance(kind, msgspec.inspect.Metadata):
        return {**_schema(kind.type), **(kind.extra_json_schema or {})}
    if isinstance(kind, msgspec.inspect.StructType):
        return _object(kind)
    if isinstance(kind, msgspec.inspect.UnionType):
        return _union(kind)
    if isinstance(kind, msgspec.inspect.EnumType):
        return {"type": "string", "enum": [member.value for member in kind.cls]}
    if isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.DictType):
        return _collection(kind)
    if type(kind) in _SCALARS:
        return dict(_SCALARS[type(kind)])
    raise UnsupportedError(f"a CustomResourceDefinition cannot describe {kind!r}")


def _collection(kind: msgspec.inspect.ListType | msgspec.inspect.DictType) -> Schema:
    if isinstance(kind, msgspec.inspect.ListType):
        return {"type": "array", "items": _schema(kind.item_type)}
    return {"type": "object", "additionalProperties": _schema(kind.value_type)}


def _object(kind: msgspec.inspect.StructType) -> Schema:
    properties = {field.encode_name: _schema(field.type) for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _union(kind: msgspec.inspect.UnionType) -> Schema:
    members = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
    if len(members) == 1:
        return _schema(members[0])
    if {type(member) for member in members} == {msgspec.inspect.IntType, msgspec.inspect.StrType}:
        return {"x-kubernetes-int-or-string": True}
    raise UnsupportedError(f"a CustomResourceDefinition cannot describe {kind!r}")
