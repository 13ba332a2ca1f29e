#!/usr/bin/env python3
"""Writes the tables of built-in resources and types from packages of the registries. See README.md."""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
CRATE = HERE.parent
SCHEMA = CRATE / "src" / "registry" / "types" / "schema"

# --- What the packages do not say ---------------------------------------------------------------------------------

# Betas and alphas are off by default; these version names are the served ones.
STABLE = {"v1", "v2"}
# kube-fake-client describes 1.34; these became stable since. Rows: group, version, resource, singular, kind, scope.
NEW_RESOURCES = [
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "mutatingadmissionpolicy",
     "MutatingAdmissionPolicy", "Cluster"),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding",
     "MutatingAdmissionPolicyBinding", "Cluster"),
]
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Kinds that are read or written without being a resource.
EXTRA_KINDS = [
    ("", "v1", "Status"),
    ("meta.k8s.io", "v1", "DeleteOptions"),
    ("meta.k8s.io", "v1", "ListMeta"),
    ("meta.k8s.io", "v1", "PartialObjectMetadata"),
    ("autoscaling", "v1", "Scale"),
]
# The source has neither type nor text of quantities.
QUANTITY = {"description": "Quantity is a fixed-point representation of a number. It provides convenient "
                           "marshaling/unmarshaling in JSON and YAML, in addition to String() and AsInt64() accessors."}
# Definitions every OpenAPI document may refer to, beside the served kinds and their lists.
EXTRA_DEFINITIONS = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "DeleteOptions",
    "ListMeta",
    "ObjectMeta",
    "Patch",
    "Status",
    "WatchEvent",
]
GO_PACKAGES = {
    "k8s.io/api/": "io.k8s.api.",
    "k8s.io/apimachinery/": "io.k8s.apimachinery.",
    "k8s.io/apiextensions-apiserver/": "io.k8s.apiextensions-apiserver.",
    "k8s.io/kube-aggregator/": "io.k8s.kube-aggregator.",
}
META = "k8s.io/apimachinery/pkg/apis/meta/v1."
EXTENSIONS = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1."
# Go types that decode themselves.
CUSTOM = {
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "Quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "IntOrString",
    META + "Time": "Time",
    META + "MicroTime": "MicroTime",
    META + "FieldsV1": "Raw",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "Raw",
    EXTENSIONS + "JSON": "Json",
    EXTENSIONS + "JSONSchemaPropsOrArray": "SchemaOrArray",
    EXTENSIONS + "JSONSchemaPropsOrBool": "SchemaOrBool",
    EXTENSIONS + "JSONSchemaPropsOrStringArray": "SchemaOrStrings",
}
SCALARS = {"string": "String", "bool": "Bool", "int32": "Int32", "int64": "Int64", "float64": "Float64"}

# --- Sources --------------------------------------------------------------------------------------------------------


def definitions(work):
    """The OpenAPI definitions of 1.36 with their extensions and descriptions."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work,
                    "kubernetes-validate==1.36.0"], check=True)
    wheel = next(work.glob("kubernetes_validate-1.36.0-*.whl"))
    path = "kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json"
    return json.loads(zipfile.ZipFile(wheel).read(path))["$defs"]


def discovery(work):
    """The groups as aggregated discovery shows them, and the resources of core/v1."""
    crate = work / "scratch"
    (crate / "src").mkdir(parents=True, exist_ok=True)
    (crate / "src" / "lib.rs").write_text("")
    (crate / "Cargo.toml").write_text('[package]\nname = "scratch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n'
                                      '[dependencies]\nkube-fake-client = "=0.1.4"\n')
    subprocess.run(["cargo", "vendor", "--quiet", "--versioned-dirs", "vendor"], cwd=crate, check=True,
                   stdout=subprocess.DEVNULL)
    folder = crate / "vendor" / "kube-fake-client-0.1.4" / "kubernetes" / "api" / "discovery"
    return json.loads((folder / "aggregated_v2.json").read_text()), json.loads((folder / "api__v1.json").read_text())


def go_types(work):
    """The Go types, by reflection."""
    cache = work / "gotypes.json"
    if not cache.exists():
        out = subprocess.run(["go", "run", "."], cwd=HERE / "gotypes", check=True, stdout=subprocess.PIPE).stdout
        cache.write_bytes(out)
    return json.loads(cache.read_text())


# --- Resources ------------------------------------------------------------------------------------------------------


def core_resources(listing):
    """The rows of core/v1, in the form aggregated discovery has."""
    rows, by_name = [], {}
    for item in listing["resources"]:
        name, _, sub = item["name"].partition("/")
        kind = {"group": item.get("group", ""), "version": item.get("version", ""), "kind": item["kind"]}
        if sub:
            by_name[name].setdefault("subresources", []).append(
                {"subresource": sub, "responseKind": kind, "verbs": sorted(item["verbs"])})
            continue
        row = {"resource": name, "singularResource": item["singularName"], "responseKind": kind,
               "scope": "Namespaced" if item["namespaced"] else "Cluster", "verbs": sorted(item["verbs"]),
               "shortNames": item.get("shortNames", []), "categories": item.get("categories", [])}
        rows.append(row)
        by_name[name] = row
    return rows


def served(aggregated, core):
    """`(group, version, row)` of all resources, in the order of discovery."""
    rows = [("", "v1", row) for row in core_resources(core)]
    for item in aggregated["items"]:
        group = item["metadata"]["name"]
        for version in item["versions"]:
            if version["version"] not in STABLE:
                continue
            found = list(version["resources"])
            for new_group, new_version, resource, singular, kind, scope in NEW_RESOURCES:
                if (new_group, new_version) == (group, version["version"]):
                    found.append({"resource": resource, "singularResource": singular, "scope": scope,
                                  "responseKind": {"kind": kind}, "verbs": ALL_VERBS,
                                  "categories": ["api-extensions"]})
            for row in sorted(found, key=lambda row: row["resource"]):
                rows.append((group, version["version"], row))
    return rows


def quote(text):
    return json.dumps(text)


def texts(items):
    return "texts![" + ", ".join(quote(item) for item in items) + "]" if items else "NONE"


def verbs(items):
    return "ALL" if list(items) == ALL_VERBS else texts(items)


def resource_rows(rows):
    """The source of `resources.rs`."""
    out = [
        "//! The built-in resources, in the order in which discovery shows them.",
        "//!",
        "//! @generated by fake-apiserver/generate/generate.py",
        "",
        "use std::borrow::Cow::{self, Borrowed};",
        "",
        "use crate::api::resource::Scope::{Cluster, Namespaced};",
        "use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo, Text};",
        "",
        "type Texts = Cow<'static, [Text]>;",
        "",
        "macro_rules! texts {",
        "    ($($text:literal),*) => {{",
        "        const TEXTS: &[Text] = &[$(Borrowed($text)),*];",
        "        Borrowed(TEXTS)",
        "    }};",
        "}",
        "",
        "const NONE: Texts = Borrowed(&[]);",
        "const ALL: Texts = texts![" + ", ".join(quote(verb) for verb in ALL_VERBS) + "];",
        "",
        "macro_rules! subresources {",
        "    ($($sub:expr),*) => {{",
        "        const SUBRESOURCES: &[SubresourceInfo] = &[$($sub),*];",
        "        SUBRESOURCES",
        "    }};",
        "}",
        "",
        "const fn sub(name: &'static str, kind: [&'static str; 3], verbs: Texts) -> SubresourceInfo {",
        "    SubresourceInfo {",
        "        name: Borrowed(name),",
        "        group: Borrowed(kind[0]),",
        "        version: Borrowed(kind[1]),",
        "        kind: Borrowed(kind[2]),",
        "        verbs,",
        "    }",
        "}",
        "",
        "/// Group, version, resource, singular, kind, list kind.",
        "type Names = [&'static str; 6];",
        "",
        "const fn row(",
        "    names: Names,",
        "    scope: Scope,",
        "    short_names: Texts,",
        "    categories: Texts,",
        "    verbs: Texts,",
        "    subresources: &'static [SubresourceInfo],",
        ") -> ResourceInfo {",
        "    let [group, version, resource, singular, kind, list_kind] = names;",
        "    ResourceInfo {",
        "        group: Borrowed(group),",
        "        version: Borrowed(version),",
        "        resource: Borrowed(resource),",
        "        singular: Borrowed(singular),",
        "        kind: Borrowed(kind),",
        "        list_kind: Borrowed(list_kind),",
        "        scope,",
        "        short_names,",
        "        categories,",
        "        verbs,",
        "        subresources: Borrowed(subresources),",
        "    }",
        "}",
        "",
        "/// Every built-in resource a server serves by default.",
        "#[rustfmt::skip]",
        f"pub(crate) static BUILTINS: &[ResourceInfo] = &BUILTIN_ROWS;",
        "",
        "#[rustfmt::skip]",
        f"static BUILTIN_ROWS: [ResourceInfo; {len(rows)}] = [",
    ]
    for group, version, row in rows:
        kind = row["responseKind"]["kind"]
        subs = []
        for sub in sorted(row.get("subresources", []), key=lambda sub: sub["subresource"]):
            of = sub["responseKind"]
            own = not of.get("version")
            names = [group if own else of["group"], version if own else of["version"], of["kind"]]
            subs.append("sub({}, [{}], {})".format(quote(sub["subresource"]), ", ".join(map(quote, names)),
                                                   verbs(sorted(sub["verbs"]))))
        names = [group, version, row["resource"], row["singularResource"], kind, kind + "List"]
        lists = [texts(row.get("shortNames", [])), texts(row.get("categories", [])), verbs(sorted(row["verbs"]))]
        head = "    row([{}], {}, {},".format(", ".join(map(quote, names)), row["scope"], ", ".join(lists))
        out.append(head)
        out.append("        subresources![{}]),".format(", ".join(subs)) if subs else "        &[]),")
    out += ["];", ""]
    return "\n".join(out)


# --- Types ----------------------------------------------------------------------------------------------------------


# Definition and name of every field that identifies items of a list.
KEYS = set()


def list_keys(defs):
    for spec in defs.values():
        for prop in spec.get("properties", {}).values():
            for key in prop.get("x-kubernetes-list-map-keys", []):
                yield definition_of(prop["items"]), key


def definition_of(spec):
    return spec.get("$ref", "").removeprefix("#/$defs/")


class Table:
    """The flat tables of shapes, structs and fields."""

    def __init__(self, types, defs, defaults):
        self.types, self.defs, self.defaults = types, defs, defaults
        self.shapes, self.shape_index = [], {}
        self.structs, self.struct_index = [], {}
        self.done = {}

    def add_shape(self, source):
        if source not in self.shape_index:
            self.shape_index[source] = len(self.shapes)
            self.shapes.append(source)
        return self.shape_index[source]

    def shape(self, go, spec=None, field=None):
        """The index of the shape of the Go type `go`, as the OpenAPI property `spec` and the Go field describe it."""
        spec, field = spec or {}, field or {}
        kind = self.types[go]
        if kind["kind"] == "ptr":
            # A pointer prints as what it points to; the field says that it is one.
            return self.shape(kind["elem"], spec, field)
        print_name = kind["print"]
        patch = self.patch(field)
        if go in CUSTOM:
            what = CUSTOM[go]
            if what.startswith("Schema"):
                what += "(" + str(self.shape(EXTENSIONS + "JSONSchemaProps")) + ")"
            flags = "ATOMIC" if what[0] in "RJS" else "0"
            return self.add_shape(f"h({what}, {flags}, NO_LIST, {patch}, {quote(print_name)})")
        if kind["kind"] in SCALARS:
            return self.add_shape(f"h({SCALARS[kind['kind']]}, 0, NO_LIST, {patch}, {quote(print_name)})")
        if kind["kind"] == "slice" and kind["elem"] == "uint8":
            return self.add_shape(f"h(Bytes, 0, NO_LIST, {patch}, {quote(print_name)})")
        if kind["kind"] == "slice":
            item = self.shape(kind["elem"], spec.get("items"))
            # Named slices are messages of their own in protobuf.
            flags = "WRAPPED" if kind.get("name") == "ExtraValue" else "0"
            return self.add_shape(
                f"h(List({item}), {flags}, {self.list_type(spec)}, {patch}, {quote(print_name)})")
        atomic = "ATOMIC" if spec.get("x-kubernetes-map-type") == "atomic" else "0"
        if kind["kind"] == "map":
            item = self.shape(kind["elem"], spec.get("additionalProperties"))
            return self.add_shape(f"h(Map({item}), {atomic}, NO_LIST, {patch}, {quote(print_name)})")
        assert kind["kind"] == "struct", (go, kind)
        name = openapi_name(kind)
        if self.defs.get(name, {}).get("x-kubernetes-map-type") == "atomic":
            atomic = "ATOMIC"
        index = self.struct(go)
        return self.add_shape(f"h(Struct({index}), {atomic}, NO_LIST, {patch}, {quote(print_name)})")

    @staticmethod
    def patch(field):
        words = set(filter(None, field.get("patchStrategy", "").split(",")))
        if not words:
            return "NO_PATCH"
        assert words <= {"merge", "retainKeys", "replace"}, words
        key = field.get("patchMergeKey")
        flags = [str(word in words).lower() for word in ("merge", "retainKeys", "replace")]
        return "p({}, {})".format(", ".join(flags), f"Some({quote(key)})" if key else "None")

    @staticmethod
    def list_type(spec):
        kind = spec.get("x-kubernetes-list-type")
        if kind is None and "merge" in spec.get("x-kubernetes-patch-strategy", ""):
            key = spec.get("x-kubernetes-patch-merge-key")
            return f"keys(&[{quote(key)}])" if key else "ListType::Set"
        if kind == "set":
            return "ListType::Set"
        if kind == "map":
            return "keys(&[{}])".format(", ".join(map(quote, spec["x-kubernetes-list-map-keys"])))
        return "NO_LIST"

    def struct(self, go):
        if go in self.struct_index:
            return self.struct_index[go]
        index = self.struct_index[go] = len(self.structs)
        self.structs.append(None)
        kind = self.types[go]
        name = openapi_name(kind)
        spec = self.defs.get(name, {})
        properties, required = spec.get("properties", {}), set(spec.get("required", []))
        fields = []
        for field in flat_fields(self.types, go):
            if spec and field["json"] not in properties:
                print(f"note: {name}.{field['json']} is not in the OpenAPI document", file=sys.stderr)
            shape = self.shape(field["type"], properties.get(field["json"]), field)
            flags = [flag for flag, on in (
                ("REQUIRED", field["json"] in required),
                ("POINTER", self.types[field["type"]]["kind"] == "ptr"),
                ("OMIT_EMPTY", field.get("omitempty")),
                ("OMIT_ZERO", field.get("omitzero")),
            ) if on]
            fields.append((field["json"], shape, " | ".join(flags) or "0", protobuf_path(field["numbers"]), field["via"]))
        for prop in properties:
            if prop not in {field[0] for field in fields}:
                print(f"note: {name}.{prop} is not in the Go type", file=sys.stderr)
        defaults = [(key, json.loads(value)) for key, value in sorted(self.defaults.get(go, {}).items())
                    if (name, key) in KEYS]
        self.structs[index] = (kind["name"], name, sorted(fields), defaults)
        return index


def openapi_name(kind):
    for prefix, name in GO_PACKAGES.items():
        if kind["pkg"].startswith(prefix):
            return name + kind["pkg"][len(prefix):].replace("/", ".") + "." + kind["name"]
    raise ValueError(kind["pkg"])


def flat_fields(types, go, numbers=(), via=()):
    """The fields of a struct, with those of inlined structs; `numbers` leads to each in the protobuf message, where
    inlined structs are messages of their own, and `via` names those structs, as Go's errors do."""
    for field in types[go].get("fields", []):
        number = field.get("protobuf", "").split(",")[1:2]
        # What stands in no message stands in none with all it holds, as `kind` and `apiVersion` do.
        path = (*numbers, int(number[0])) if number and numbers is not None else None
        if field.get("inline"):
            inner = field["type"].lstrip("*")
            yield from flat_fields(types, inner, path, (*via, types[inner]["name"]))
        else:
            yield {**field, "numbers": path or (), "via": ".".join(via)}


def protobuf_path(numbers):
    """Field numbers as the bytes of one number, the outermost first."""
    assert all(0 < number < 256 for number in numbers) and len(numbers) <= 4, numbers
    return "0x" + "".join(f"{number:02x}" for number in numbers) if numbers else "0"


def type_tables(rows, types, defs):
    """The source of `table.rs`, and the names of the OpenAPI definitions it covers."""
    KEYS.update(list_keys(defs))
    table = Table(types["types"], defs, types["comments"]["defaults"])
    kinds = set(EXTRA_KINDS)
    for group, version, row in rows:
        kinds.add((group, version, row["responseKind"]["kind"]))
        for sub in row.get("subresources", []):
            of = sub["responseKind"]
            own = not of.get("version")
            kinds.add((group if own else of["group"], version if own else of["version"], of["kind"]))
    found = []
    for group, version, kind in sorted(kinds):
        go = types["kinds"].get(f"{group}/{version}/{kind}")
        assert go, (group, version, kind)
        found.append((group, version, kind, table.shape(go)))
    flat, starts = [], []
    for _, _, fields, _ in table.structs:
        starts.append(len(flat))
        flat.extend(fields)
    out = [
        "//! The types of the built-in resources as flat tables; `builtin.rs` gives them meaning.",
        "//!",
        "//! @generated by fake-apiserver/generate/generate.py",
        "",
        "use super::builtin::Kind::{",
        "    Bool, Bytes, Float64, Int32, Int64, IntOrString, Json, List, Map, MicroTime, Quantity, Raw, SchemaOrArray,",
        "    SchemaOrBool, SchemaOrStrings, String, Struct, Time,",
        "};",
        "use super::builtin::{ATOMIC, Field, OMIT_EMPTY, OMIT_ZERO, POINTER, REQUIRED, Shape, StructType, WRAPPED};",
        "use super::builtin::{NO_LIST, NO_PATCH, field as f, inlined, keys, patch as p, shape as h, structure as s};",
        "use super::ListType;",
        "",
        "/// The kinds with their shapes, sorted by group, version and kind.",
        "#[rustfmt::skip]",
        f"pub(super) static KINDS: [(&str, &str, &str, u16); {len(found)}] = [",
    ]
    out += [f"    ({quote(g)}, {quote(v)}, {quote(k)}, {shape})," for g, v, k, shape in found]
    names = {kind for _, _, kind, _ in found}
    served_kinds = {row[:3] for row in found}
    others = sorted(key for key in (tuple(key.split("/")) for key in types["kinds"] if key.count("/") == 2)
                    if key not in served_kinds and key[2] in names and not key[2].endswith("Options"))
    others = [key for key in others if key[0] != "meta.k8s.io" and key[2] not in ("Status", "ListMeta")]
    out += ["];", "", "/// Kinds the server knows in versions it does not serve, sorted.", "#[rustfmt::skip]",
            f"pub(super) static UNSERVED: [(&str, &str, &str); {len(others)}] = ["]
    out += [f"    ({quote(g)}, {quote(v)}, {quote(k)})," for g, v, k in others]
    out += ["];", "", "/// Every distinct shape.", "#[rustfmt::skip]",
            f"pub(super) static SHAPES: [Shape; {len(table.shapes)}] = ["]
    out += [f"    {shape}, // {index}" for index, shape in enumerate(table.shapes)]
    out += ["];", "", "/// Every struct: its fields lie side by side in `FIELDS`.", "#[rustfmt::skip]",
            f"pub(super) static STRUCTS: [StructType; {len(table.structs)}] = ["]
    for index, (name, full, fields, defaults) in enumerate(table.structs):
        pairs = ", ".join(f"({quote(k)}, {quote(v)})" for k, v in defaults)
        out.append(f"    s({quote(name)}, {quote(full)}, {starts[index]}, {len(fields)}, &[{pairs}]), // {index}")
    out += ["];", "", "/// The fields of all structs, sorted by name within each.", "#[rustfmt::skip]",
            f"pub(super) static FIELDS: [Field; {len(flat)}] = ["]
    for index, (name, _, fields, _) in enumerate(table.structs):
        out.append(f"    // {name}")
        for json_name, shape, flags, path, via in fields:
            row = f"{quote(json_name)}, {shape}, {flags}, {path}"
            out.append(f"    inlined({row}, {quote(via)})," if via else f"    f({row}),")
    out += ["];", ""]
    print(f"{len(found)} kinds, {len(table.shapes)} shapes, {len(table.structs)} structs, {len(flat)} fields",
          file=sys.stderr)
    return "\n".join(out), table


# --- OpenAPI --------------------------------------------------------------------------------------------------------


class Documents:
    """The definitions in the form of OpenAPI v3."""

    def __init__(self, types, defs):
        self.types, self.defs = types["types"], defs
        self.enums, self.defaults = types["comments"]["enums"], types["comments"]["defaults"]
        self.go = {openapi_name(kind): go for go, kind in self.types.items()
                   if kind["kind"] == "struct" and any(kind.get("pkg", "").startswith(p) for p in GO_PACKAGES)}
        self.out = {}

    def add(self, name):
        if name not in self.out:
            self.out[name] = None
            self.out[name] = self.schema(name)

    def schema(self, name):
        if name == "io.k8s.apimachinery.pkg.api.resource.Quantity":
            return {**QUANTITY, "oneOf": [{"type": "string"}, {"type": "number"}]}
        if name == "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
            return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
        spec = self.clean(self.defs[name])
        go = self.go.get(name)
        if "properties" not in spec or not go or go in CUSTOM:
            return spec
        fields = {field["json"]: field for field in flat_fields(self.types, go)}
        for prop, value in spec["properties"].items():
            spec["properties"][prop] = self.field(go, value, fields.get(prop))
        return spec

    def clean(self, spec):
        """Drops what the source adds to v2 definitions: `null` among types, the only values of kind and apiVersion."""
        if isinstance(spec, list):
            return [self.clean(item) for item in spec]
        if not isinstance(spec, dict):
            return spec
        out = {}
        for key, value in spec.items():
            if key == "type" and isinstance(value, list):
                value = next(item for item in value if item != "null")
            elif key == "$ref":
                name = definition_of(spec)
                self.add(name)
                value = "#/components/schemas/" + name
            elif key == "properties":
                value = {name: self.clean(prop) for name, prop in value.items()}
                for name in ("kind", "apiVersion"):
                    value.get(name, {}).pop("enum", None)
            elif key != "enum":
                value = self.clean(value)
            out[key] = value
        return out

    def field(self, owner, spec, field):
        kind = self.types[field["type"]] if field else None
        pointer = bool(kind) and kind["kind"] == "ptr"
        shown = bool(field) and not field.get("omitempty") and not field.get("omitzero")
        spec = self.typed(spec, field and field["type"], zero=not pointer and shown)
        marker = field and self.defaults.get(owner, {}).get(field["json"])
        if marker is not None:
            spec["default"] = json.loads(marker)
        return spec

    def typed(self, spec, go, zero):
        """The schema of a value of the Go type `go`; `zero`: its zero value is the default."""
        if go is None:
            return spec
        kind = self.types[go]
        pointer = kind["kind"] == "ptr"
        if pointer:
            go, kind = kind["elem"], self.types[kind["elem"]]
        if "$ref" in spec:
            is_struct = kind["kind"] == "struct" and go not in CUSTOM and not pointer
            if len(spec) == 1 and not is_struct:
                return spec
            spec = {"allOf": [{"$ref": spec["$ref"]}], **{k: v for k, v in spec.items() if k != "$ref"}}
            if is_struct:
                spec["default"] = {}
            return spec
        for key in ("items", "additionalProperties"):
            if key in spec and "elem" in kind:
                spec[key] = self.typed(spec[key], kind["elem"], zero=True)
        of = kind["elem"].lstrip("*") if kind["kind"] == "slice" else go
        values = self.enums.get(of)
        if values:
            lines = sorted(f" - `{quote(value)}` {comment}".rstrip() if not comment
                           else f" - `{quote(value)}` {comment}" for value, comment in values)
            spec["description"] = "\n".join([spec.get("description", ""), "", "Possible enum values:", *lines])
            (spec["items"] if kind["kind"] == "slice" else spec)["enum"] = sorted(value for value, _ in values)
        zeros = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
        if zero and kind["kind"] in zeros:
            spec["default"] = zeros[kind["kind"]]
        return spec


def openapi(rows, types, defs, table):
    """The definitions all documents are made of, as one JSON object."""
    documents = Documents(types, defs)
    for _, name, _, _ in table.structs:
        if name in defs:
            documents.add(name)
        if name + "List" in defs:
            documents.add(name + "List")
    for name in EXTRA_DEFINITIONS:
        documents.add("io.k8s.apimachinery.pkg.apis.meta.v1." + name)
    documents.add("io.k8s.apimachinery.pkg.version.Info")
    return json.dumps(documents.out, sort_keys=True, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/generate"),
                        help="folder for downloads")
    args = parser.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    defs, (aggregated, core), types = definitions(work), discovery(work), go_types(work)
    rows = served(aggregated, core)
    (SCHEMA / "resources.rs").write_text(resource_rows(rows))
    source, table = type_tables(rows, types, defs)
    (SCHEMA / "table.rs").write_text(source)
    document = openapi(rows, types, defs, table).encode()
    subprocess.run(["rustfmt", "--edition", "2024", SCHEMA / "resources.rs", SCHEMA / "table.rs"], check=True)
    packed = gzip.compress(document, 9, mtime=0)
    (CRATE / "data").mkdir(exist_ok=True)
    (CRATE / "data" / "openapi.json.gz").write_bytes(packed)
    print(f"OpenAPI: {len(document)} bytes, {len(packed)} packed", file=sys.stderr)


if __name__ == "__main__":
    main()
