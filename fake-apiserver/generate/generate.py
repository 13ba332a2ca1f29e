#!/usr/bin/env python3
"""Writes the tables of built-in resources and types from packages of the registries. See README.md."""

import argparse
import base64
import gzip
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
CRATE = HERE.parent
SCHEMA = CRATE / "src" / "registry" / "types" / "schema"

# --- Configuration ------------------------------------------------------------------------------------------------

# The served minor versions, oldest first, with the releases of the packages that describe them: the Go modules (major
# version 1 for k8s.io/kubernetes, 0 for its staging modules), and PyPI's kubernetes-validate.
VERSIONS = {
    "1.33": ("33.13", "1.33.0"),
    "1.34": ("34.9", "1.34.1"),
    "1.35": ("35.8", "1.35.0"),
    "1.36": ("36.2", "1.36.0"),
    "1.37": ("37.2", "1.37.0"),
}
# The version that is served by default. The strategies of kinds implement the rules of this version.
DEFAULT = "1.36"
# Versions that are served by default; beta and alpha versions are off by default.
STABLE = {"v1", "v2"}
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Kinds that are read or written but are not resources.
EXTRA_KINDS = [
    ("", "v1", "Status"),
    ("meta.k8s.io", "v1", "DeleteOptions"),
    ("meta.k8s.io", "v1", "ListMeta"),
    ("meta.k8s.io", "v1", "PartialObjectMetadata"),
    ("autoscaling", "v1", "Scale"),
]
# The source contains neither the type nor the description of quantities.
QUANTITY = {"description": "Quantity is a fixed-point representation of a number. It provides convenient "
                           "marshaling/unmarshaling in JSON and YAML, in addition to String() and AsInt64() accessors."}
# Definitions to which every OpenAPI document may refer, in addition to the served kinds and their lists.
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
# Go types with their own JSON decoding.
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
# Feature gates of fields whose comments do not contain the gate.
GATES = {
    ("k8s.io/api/apps/v1.DeploymentStatus", "terminatingReplicas"): "DeploymentReplicaSetTerminatingReplicas",
    ("k8s.io/api/apps/v1.ReplicaSetStatus", "terminatingReplicas"): "DeploymentReplicaSetTerminatingReplicas",
    ("k8s.io/api/core/v1.VolumeSource", "image"): "ImageVolume",
    ("k8s.io/api/discovery/v1.EndpointHints", "forNodes"): "PreferSameTrafficDistribution",
}
SCALARS = {"string": "String", "bool": "Bool", "int32": "Int32", "int64": "Int64", "float64": "Float64"}

# --- Sources --------------------------------------------------------------------------------------------------------


def definitions(work, release):
    """Returns the OpenAPI definitions with their extensions and descriptions."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work,
                    "kubernetes-validate==" + release], check=True)
    wheel = next(work.glob(f"kubernetes_validate-{release}-*.whl"))
    # A wheel contains the definitions of the minor version's first release.
    minor = release.rsplit(".", 1)[0] + ".0"
    path = f"kubernetes_validate/kubernetes-json-schema/v{minor}-local/_definitions.json"
    return json.loads(zipfile.ZipFile(wheel).read(path))["$defs"]


def module(work, name, release):
    """Downloads a Go module, and returns its directory."""
    out = subprocess.run(["go", "mod", "download", "-json", f"k8s.io/{name}@v{release}"], cwd=work, check=True,
                         stdout=subprocess.PIPE).stdout
    return pathlib.Path(json.loads(out)["Dir"])


def discovery(folder):
    """Returns the groups from aggregated discovery, and the resources of core/v1."""
    folder = folder / "api" / "discovery"
    return json.loads((folder / "aggregated_v2.json").read_text()), json.loads((folder / "api__v1.json").read_text())


def go_types(work, release):
    """Returns the Go types, found by reflection."""
    cache = work / "gotypes.json"
    if not cache.exists():
        module = work / "gotypes"
        shutil.copytree(HERE / "gotypes", module, dirs_exist_ok=True)
        modules = ["api", "apiextensions-apiserver", "apimachinery", "client-go", "kube-aggregator"]
        subprocess.run(["go", "get", *(f"k8s.io/{name}@v0.{release}" for name in modules)], cwd=module, check=True)
        subprocess.run(["go", "mod", "tidy"], cwd=module, check=True)
        out = subprocess.run(["go", "run", "."], cwd=module, check=True, stdout=subprocess.PIPE).stdout
        cache.write_bytes(out)
    return json.loads(cache.read_text())


def gates(work, release, minor):
    """Returns the feature gates of kube-apiserver in a minor version, each with `default stage[ locked]`."""
    files = [module(work, "kubernetes", "1." + release) / "pkg" / "features" / "kube_features.go"]
    for name, path in [("apiserver", "pkg/features/kube_features.go"), ("client-go", "features/known_features.go"),
                       ("component-base", "logs/api/v1/kube_features.go"),
                       ("component-base", "metrics/features/kube_features.go"),
                       ("component-base", "zpages/features/kube_features.go"),
                       ("apiextensions-apiserver", "pkg/features/kube_features.go"),
                       ("kube-aggregator", "pkg/features/kube_features.go"),
                       ("controller-manager", "pkg/features/kube_features.go")]:
        files.append(module(work, name, "0." + release) / path)
    out = {}
    number = lambda text: tuple(map(int, text.split(".")))
    for text in [file.read_text() for file in files if file.exists()]:
        named = dict(re.findall(r'(\w+)(?:\s+(?:featuregate\.)?Feature)?\s+= (?:featuregate\.Feature\()?"(\w+)"', text))
        # In client-go before 1.34, each gate has a single line without versions.
        single = re.findall(r"^\t+(\w+):\s+(\{Default: .*)\n", text, re.M)
        versioned = re.findall(r"^\t+(?:\w+\.)?(\w+): \{\n((?:\t+(?:\{Version.*|//.*)\n)+)\t+\}", text, re.M)
        for name, specs in single + versioned:
            for spec in re.findall(r"\{(.*)\}", specs):
                since = re.search(r'Version:\s+version\.MustParse\("([\d.]+)"\)', spec)
                if since is None or number(since.group(1)) <= number(minor):
                    stage = re.search(r"\b(Alpha|Beta|GA|Deprecated|PreAlpha)\b", spec.split("PreRelease")[-1])
                    default = re.search(r"Default:\s+(true|false)", spec).group(1)
                    locked = " locked" if re.search(r"LockToDefault:\s+true", spec) else ""
                    out[named.get(name, name)] = f"{default} {stage.group(1).upper() if stage else 'GA'}{locked}"
    return out


# --- Resources ------------------------------------------------------------------------------------------------------


def core_resources(listing):
    """Returns the rows of core/v1, in the format of aggregated discovery."""
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
    """Returns `(group, version, row)` of all resources in the order of discovery: on by default, and off by default."""
    rows, others = [("", "v1", row) for row in core_resources(core)], []
    for item in aggregated["items"]:
        group = item["metadata"]["name"]
        for version in item["versions"]:
            to = rows if version["version"] in STABLE else others
            for row in sorted(version["resources"], key=lambda row: row["resource"]):
                to.append((group, version["version"], row))
    return rows, others


def storage_gates(folder):
    """Returns the gates on which resources' storage depends, by directory of the group, version and resource."""
    out = {}
    for file in (folder / "pkg" / "registry").glob("*/rest/storage_*.go"):
        for resource, version, gate in re.findall(
                r'resource := "(\w+)"; \w+\.ResourceEnabled\(\w*?(v\d+(?:(?:alpha|beta)\d+)?)\.SchemeGroupVersion[^{]*\{\n'
                r'\s*if utilfeature\.DefaultFeatureGate\.Enabled\(features\.(\w+)\)', file.read_text()):
            out[file.parent.parent.name, version, resource] = gate
    return out


def storage_versions(folder, rows, kinds):
    """Returns the storage version of each resource. Discovery only contains its hash."""
    out, hashes = {}, {}
    for group, version, row in rows:
        file = folder / "api" / "discovery" / f"apis__{group}__{version}.json"
        if file not in hashes:
            hashes[file] = {it["name"]: it.get("storageVersionHash") for it in json.loads(file.read_text())["resources"]}
        kind = row["responseKind"]["kind"]
        for known in (key.split("/") for key in kinds):
            digest = hashlib.sha256(f"{group}/{known[1]}/{kind}".encode()).digest()[:8]
            if known[0] == group and base64.b64encode(digest).decode() == hashes[file][row["resource"]]:
                out[group, version, row["resource"]] = known[1]
    return out


def registered(folder, release):
    """Returns the group versions that kube-apiserver registers, served or not: `--runtime-config` may contain them."""
    out = set()
    for name in ("kubernetes", "apiextensions-apiserver", "kube-aggregator"):
        root = module(folder, name, f"{'1' if name == 'kubernetes' else '0'}.{release}") / "pkg" / "apis"
        for file in root.glob("*/install/install.go"):
            text = (file.parent.parent / "register.go").read_text()
            group = re.search(r'GroupName\s*=\s*"(.*)"', text)[1]
            for version in re.findall(rf'"k8s\.io/[a-z/-]+/pkg/apis/{file.parent.parent.name}/(v\d\w*)"', file.read_text()):
                out.add((group, version))
    return out


def registered_rows(by_minor):
    """Returns a row for each group version that a minor version registers, and the variants used in the rows."""
    out, used, minors = [], set(), list(by_minor)
    for group, version in sorted(set().union(*by_minor.values())):
        known = [minor for minor in minors if (group, version) in by_minor[minor]]
        first, last = minors.index(known[0]), minors.index(known[-1])
        assert known == minors[first:last + 1], f"{group}/{version} was registered again"
        until = f"Some({variant(minors[last + 1])})" if last + 1 < len(minors) else "None"
        out.append(f"    ({quote(group)}, {quote(version)}, {variant(minors[first])}, {until}),")
        used |= set(re.findall(r"V1_\d+", out[-1]))
    return out, used


def rank(version):
    """Returns a sort key that orders versions by stability and number, highest last."""
    major, stage, minor = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version).groups()
    return (["alpha", "beta", None].index(stage), int(major), int(minor or 0))


def fields_of(types, go, package, above=()):
    """Returns the fields of a Go type, recursively, without the names of types in the package."""
    kind = types[go]
    if kind["kind"] in ("ptr", "slice"):
        return [kind["kind"], fields_of(types, kind["elem"], package, above)]
    if kind["kind"] == "map":
        return ["map", fields_of(types, kind["elem"], package, above)]
    if kind["kind"] != "struct" or go in above:
        return kind["kind"]
    if kind.get("pkg") != package:
        return go
    return [[field["json"], bool(field.get("omitempty")), bool(field.get("omitzero")),
             fields_of(types, field["type"], package, (*above, go))] for field in flat_fields(types, go)]


def lifecycle(types, kind, release):
    """Returns the end of the warning about a deprecated version of a kind; it is also sent before the deprecation."""
    package, _, name = types["kinds"][kind].rpartition(".")
    folder = module(pathlib.Path.cwd(), "api", f"0.{release}") / package.removeprefix("k8s.io/api/")
    file = folder / "zz_generated.prerelease-lifecycle.go"
    text = file.read_text() if file.exists() else ""

    def find(function, result):
        found = re.search(rf"func \(in \*{name}\) {function}\(\)[^{{]*{{\s*return {result}", text)
        return found.groups() if found else ()
    deprecated = find("APILifecycleDeprecated", r"(\d+), (\d+)")
    if not deprecated:
        return ""
    out = "deprecated in v{}.{}+".format(*deprecated)
    removed = find("APILifecycleRemoved", r"(\d+), (\d+)")
    if removed:
        out += ", unavailable in v{}.{}+".format(*removed)
    replacement = find("APILifecycleReplacement", r'.*Group: "(.*)", Version: "(.*)", Kind: "(.*)"')
    return out + "; use {}/{} {}".format(*replacement) if replacement else out


def with_forms(folder, rows, others, types, gates, release):
    """Returns the rows of versions that are off by default, each with its gate if that is off by default, its storage
    version, the version with the fields of stored objects (the newest one if its fields differ), and its warning."""
    by_storage, stored, out = storage_gates(folder), storage_versions(folder, others, types["kinds"]), []
    for group, version, row in others:
        kind, name = row["responseKind"]["kind"], row["resource"]
        gate = by_storage.get((group.partition(".")[0], version, name), "")
        newest = max((of[1] for of in rows + others if of[0] == group and of[2]["resource"] == name), key=rank)
        of_kinds = [types["kinds"][f"{group}/{of}/{kind}"] for of in (version, newest)]
        fields = [fields_of(types["types"], of, types["types"][of]["pkg"]) for of in of_kinds]
        out.append((group, version, row, gate if gates.get(gate, "").startswith("false") else "",
                    stored[group, version, name], version if fields[0] == fields[1] else newest,
                    lifecycle(types, f"{group}/{version}/{kind}", release)))
    return out


def groups_in_order(aggregated_by_minor):
    """Returns all groups, in the order of discovery."""
    out = []
    for aggregated in aggregated_by_minor:
        at = 0
        for item in aggregated["items"]:
            name = item["metadata"]["name"]
            if name not in out:
                out.insert(at, name)
            assert out.index(name) >= at, name
            at = out.index(name) + 1
    return out


def quote(text):
    return json.dumps(text)


def texts(items):
    return "texts![" + ", ".join(quote(item) for item in items) + "]" if items else "NONE"


def verbs(items):
    return "ALL" if list(items) == ALL_VERBS else texts(items)


def resource_row(group, version, row):
    """Returns the Rust source of a row."""
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
    head = "row([{}], {}, {},".format(", ".join(map(quote, names)), row["scope"], ", ".join(lists))
    return head + "\n        " + ("subresources![{}])".format(", ".join(subs)) if subs else "&[])")


def optional_row(group, version, row, gate, stored, form, warning):
    """Returns the Rust source of a row for a version that is off by default."""
    stage = "Alpha" if "alpha" in version else "Beta"
    return "optional({}, [{}], {})".format(stage, ", ".join(map(quote, (gate, stored, form, warning))),
                                           resource_row(group, version, row))


def resource_rows(by_minor, source):
    """Returns the distinct rows in order, and the minor versions with each of them."""
    minors = list(by_minor)
    rows, found = [], {}
    for minor, of_minor in by_minor.items():
        at = 0
        for of in of_minor:
            text = source(*of)
            if text in found:
                assert rows.index(text) >= at, f"{minor} orders {text} differently"
            else:
                rows.insert(at, text)
                found[text] = []
            found[text].append(minor)
            at = rows.index(text) + 1
    return rows, found, minors


def version_bounds(rows, found, minors):
    """Returns the rows with the range of Kubernetes versions that have them, and the names of these versions."""
    out, used = [], set()
    for text in rows:
        first, last = minors.index(found[text][0]), minors.index(found[text][-1])
        assert minors[first:last + 1] == found[text], found[text]
        for word, at in (("until", last + 1), ("since", first)):
            if 0 < at < len(minors):
                text = f"{word}({variant(minors[at])}, {text})"
                used.add(variant(minors[at]))
        out.append(f"    {text},")
    return out, used


def resource_tables(by_minor, others_by_minor, groups, registered_by_minor):
    """Returns the contents of `resources.rs`."""
    out, used = version_bounds(*resource_rows(by_minor, resource_row))
    others, more = version_bounds(*resource_rows(others_by_minor, optional_row))
    known, most = registered_rows(registered_by_minor)
    used |= more | most
    head = [
        "//! The built-in resources, in the order in which discovery shows them.",
        "//!",
        "//! @generated by fake-apiserver/generate/generate.py",
        "",
        "use std::borrow::Cow::Borrowed;",
        "",
        "use super::served::Stage::{Alpha, Beta};",
        "use super::served::{ALL, NONE, Served, optional, row, since, sub, subresources, texts, until};",
        f"use crate::api::kubernetes_version::KubernetesVersion::{{self, {', '.join(sorted(used))}}};",
        "use crate::api::resource::Scope::{Cluster, Namespaced};",
        "use crate::api::resource::{SubresourceInfo, Text};",
        "",
        "/// Every built-in resource a server serves by default, and the versions of Kubernetes in which it does.",
        "#[rustfmt::skip]",
        f"pub(super) static RESOURCES: [Served; {len(out)}] = [",
    ]
    between = [
        "];",
        "",
        "/// The API groups of all versions of Kubernetes, except for the core group, in the order of discovery.",
        "#[rustfmt::skip]",
        f"pub(super) static GROUPS: [&str; {len(groups)}] = [",
        *(f"    {quote(name)}," for name in groups),
        "];",
        "",
        "/// Every resource of a version that is off by default, and the versions of Kubernetes that have it.",
        "#[rustfmt::skip]",
        f"pub(super) static OPTIONAL: [Served; {len(others)}] = [",
    ]
    after = [
        "];",
        "",
        "/// The group versions that kube-apiserver registers, served or not: the first version of Kubernetes that does,",
        "/// and the first that no longer does.",
        "#[rustfmt::skip]",
        f"pub(super) static REGISTERED: [(&str, &str, KubernetesVersion, Option<KubernetesVersion>); {len(known)}] = [",
    ]
    return "\n".join([*head, *out, *between, *others, *after, *known, "];", ""])


def variant(minor):
    """Returns the enum variant of a minor version."""
    return "V" + minor.replace(".", "_")


# --- Types ----------------------------------------------------------------------------------------------------------


# Every field that identifies the items of a list, as (definition, name).
KEYS = set()


def list_keys(defs):
    for spec in defs.values():
        for prop in spec.get("properties", {}).values():
            for key in prop.get("x-kubernetes-list-map-keys", []):
                yield definition_of(prop["items"]), key


def definition_of(spec):
    return spec.get("$ref", "").removeprefix("#/$defs/")


class Source:
    """The types of a minor version."""

    def __init__(self, minor, types, defs, gates):
        self.minor, self.kinds, self.types, self.defs = minor, types["kinds"], types["types"], defs
        self.defaults = types["comments"]["defaults"]
        # Fields that depend on a gate that is off.
        named = {(owner, field): names for owner, fields in types["comments"]["gates"].items()
                 for field, names in fields.items()}
        self.gated = {field for field, names in (named | GATES).items()
                      if any(gates.get(name, "").startswith("false") for name in names.split(","))}


class Table:
    """The flat tables of shapes, structs and fields. If a type is the same in several minor versions, it occurs once.
    If it differs, even if only in a type to which it refers, each form occurs once."""

    def __init__(self, default):
        self.default = default
        self.shapes, self.shape_index = [], {}
        self.structs, self.struct_index = [], {}

    def turn_to(self, source, forms):
        """Selects the minor version of types added later. `forms` contains the form of each type, from `forms_of`."""
        self.source, self.types, self.defs, self.defaults = source, source.types, source.defs, source.defaults
        self.forms = forms

    def describe(self, index):
        """Describes a struct independently of indices. Also returns the Go types of the structs to which it refers."""
        leads = set()

        def expand(shape):
            def inner(found):
                if found.group(1) == "Struct":
                    leads.add(self.structs[int(found.group(2))][4])
                    return f"Struct({self.structs[int(found.group(2))][4]})"
                return f"{found.group(1)}({expand(int(found.group(2)))})"
            return re.sub(r"\b(List|Map|Struct|SchemaOr\w+)\((\d+)\)", inner, self.shapes[shape])

        name, full, fields, defaults, _ = self.structs[index]
        fields = [(json_name, expand(shape), *rest) for json_name, shape, *rest in fields]
        return (name, full, fields, defaults), leads

    def add_shape(self, source):
        if source not in self.shape_index:
            self.shape_index[source] = len(self.shapes)
            self.shapes.append(source)
        return self.shape_index[source]

    def shape(self, go, spec=None, field=None):
        """Returns the index of the shape of the Go type `go`, as described by the OpenAPI property and the Go field."""
        spec, field = spec or {}, field or {}
        kind = self.types[go]
        if kind["kind"] == "ptr":
            # A pointer is printed like its target; the field has the flag POINTER.
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
            # Named slices are separate messages in protobuf.
            flags = "WRAPPED" if kind.get("name") == "ExtraValue" else "0"
            return self.add_shape(
                f"h(List({item}), {flags}, {self.list_type(spec)}, {patch}, {quote(print_name)})")
        atomic = "ATOMIC" if spec.get("x-kubernetes-map-type") == "atomic" else "0"
        if kind["kind"] == "map":
            item = self.shape(kind["elem"], spec.get("additionalProperties"))
            return self.add_shape(f"h(Map({item}), {atomic}, NO_LIST, {patch}, {quote(print_name)})")
        assert kind["kind"] == "struct", (go, kind)
        name = openapi_name(kind)
        # The field's setting takes precedence over the type's, as in structured-merge-diff.
        map_type = spec.get("x-kubernetes-map-type") or self.defs.get(name, {}).get("x-kubernetes-map-type")
        atomic = "ATOMIC" if map_type == "atomic" else "0"
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
        key = (go, self.forms.get(go))
        if key in self.struct_index:
            return self.struct_index[key]
        index = self.struct_index[key] = len(self.structs)
        self.structs.append(None)
        kind = self.types[go]
        name = openapi_name(kind)
        spec = self.defs.get(name, {})
        properties, required = spec.get("properties", {}), set(spec.get("required", []))
        fields = []
        for place, field in enumerate(flat_fields(self.types, go)):
            if spec and field["json"] not in properties:
                print(f"note: {name}.{field['json']} is not in the OpenAPI document", file=sys.stderr)
            shape = self.shape(field["type"], properties.get(field["json"]), field)
            flags = [flag for flag, on in (
                ("REQUIRED", field["json"] in required),
                ("POINTER", self.types[field["type"]]["kind"] == "ptr"),
                ("OMIT_EMPTY", field.get("omitempty")),
                ("OMIT_ZERO", field.get("omitzero")),
                ("GATED", self.is_gated(field["owner"], field["json"])),
            ) if on]
            fields.append((field["json"], shape, " | ".join(flags) or "0", protobuf_path(field["numbers"]), place,
                           field["via"]))
        for prop in properties:
            if prop not in {field[0] for field in fields}:
                print(f"note: {name}.{prop} is not in the Go type", file=sys.stderr)
        defaults = [(key, json.loads(value)) for key, value in sorted(self.defaults.get(go, {}).items())
                    if (name, key) in KEYS]
        self.structs[index] = (kind["name"], name, sorted(fields), defaults, go)
        return index

    def is_gated(self, go, field):
        """Returns `True` if the gate of a field is off in this version but not in the default version. Strategies
        handle the fields whose gates are also off in the default version."""
        if self.source is self.default or (go, field) not in self.source.gated:
            return False
        is_known = field in {it["json"] for it in self.default.types.get(go, {}).get("fields", [])}
        return not (is_known and (go, field) in self.default.gated)


def forms_of(source, default, kinds):
    """Returns a hash for each Go type of a minor version. It is the same in another version if the type and all types
    to which it refers are the same."""
    table = Table(default)
    table.turn_to(source, {})
    for group, version, kind in sorted(kinds):
        table.shape(source.kinds[f"{group}/{version}/{kind}"])
    described = {row[4]: table.describe(index) for index, row in enumerate(table.structs)}
    forms = {go: "" for go in described}
    # Types may be recursive, so the hashes are computed iteratively; no type is nested more deeply than this.
    for _ in range(32):
        forms = {go: hashlib.sha256(repr((own, sorted((lead, forms[lead]) for lead in leads))).encode()).hexdigest()
                 for go, (own, leads) in described.items()}
    return forms


def openapi_name(kind):
    for prefix, name in GO_PACKAGES.items():
        if kind["pkg"].startswith(prefix):
            return name + kind["pkg"][len(prefix):].replace("/", ".") + "." + kind["name"]
    raise ValueError(kind["pkg"])


def flat_fields(types, go, numbers=(), via=()):
    """Yields the fields of a struct, including the fields of inlined structs. `numbers` is the path of field numbers in
    the protobuf message, in which inlined structs are separate messages; `via` contains the names of these structs, as
    in Go's errors."""
    for field in types[go].get("fields", []):
        number = field.get("protobuf", "").split(",")[1:2]
        # A struct without a number, such as TypeMeta, is not in the protobuf message, and neither are its fields.
        path = (*numbers, int(number[0])) if number and numbers is not None else None
        if field.get("inline"):
            inner = field["type"].lstrip("*")
            yield from flat_fields(types, inner, path, (*via, types[inner]["name"]))
        else:
            yield {**field, "numbers": path or (), "via": ".".join(via), "owner": go}


def protobuf_path(numbers):
    """Encodes field numbers as the bytes of one integer, outermost first."""
    assert all(0 < number < 256 for number in numbers) and len(numbers) <= 4, numbers
    return "0x" + "".join(f"{number:02x}" for number in numbers) if numbers else "0"


def kinds_of(rows):
    """Returns the kinds of the requests and responses of resources and their subresources."""
    kinds = set(EXTRA_KINDS)
    for group, version, row, *_ in rows:
        kinds.add((group, version, row["responseKind"]["kind"]))
        for sub in row.get("subresources", []):
            of = sub["responseKind"]
            own = not of.get("version")
            kinds.add((group if own else of["group"], version if own else of["version"], of["kind"]))
    return kinds


def type_tables(by_minor, others_by_minor, sources):
    """Returns the contents of `table.rs`."""
    kinds = {minor: kinds_of(rows) for minor, rows in by_minor.items()}
    others = {minor: kinds_of(rows) for minor, rows in others_by_minor.items()}
    for source in sources.values():
        KEYS.update(list_keys(source.defs))
    table = Table(sources[DEFAULT])
    found, last = [], {}
    # The types of versions that are off by default are added last, so that they do not change the indices of others.
    for of_minor in (kinds, others):
        for minor, source in sources.items():
            table.turn_to(source, forms_of(source, sources[DEFAULT], kinds[minor] | others[minor]))
            for kind in sorted(of_minor[minor]):
                shape = table.shape(source.kinds["/".join(kind)])
                if last.get(kind) != shape:
                    last[kind] = shape
                    found.append((*kind, shape, variant(minor)))
    found.sort(key=lambda row: (*row[:3], row[4]))
    flat, starts = [], []
    for _, _, fields, _, _ in table.structs:
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
        "use super::builtin::{ATOMIC, Field, GATED, OMIT_EMPTY, OMIT_ZERO, POINTER, REQUIRED, Shape, StructType, WRAPPED};",
        "use super::builtin::{NO_LIST, NO_PATCH, field as f, inlined, keys, patch as p, shape as h, structure as s};",
        "use super::ListType;",
        f"use crate::api::kubernetes_version::KubernetesVersion::{{self, {', '.join(map(variant, sources))}}};",
        "",
        "/// The kinds with their shapes and the versions from which the shapes apply, sorted by group, version, kind and the",
        "/// latter version.",
        "#[rustfmt::skip]",
        f"pub(super) static KINDS: [(&str, &str, &str, KubernetesVersion, u16); {len(found)}] = [",
    ]
    out += [f"    ({quote(g)}, {quote(v)}, {quote(k)}, {since}, {shape})," for g, v, k, shape, since in found]
    names = {kind for _, _, kind, *_ in found}
    served_kinds = {row[:3] for row in found}
    known = {key for source in sources.values() for key in source.kinds}
    others = sorted(key for key in (tuple(key.split("/")) for key in known if key.count("/") == 2)
                    if key not in served_kinds and key[2] in names and not key[2].endswith("Options"))
    others = [key for key in others if key[0] != "meta.k8s.io" and key[2] not in ("Status", "ListMeta")]
    # Its types are in a module without the kinds that are read here.
    others = sorted([*others, ("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition")])
    out += ["];", "", "/// Kinds in versions that are registered but not served, sorted.", "#[rustfmt::skip]",
            f"pub(super) static UNSERVED: [(&str, &str, &str); {len(others)}] = ["]
    out += [f"    ({quote(g)}, {quote(v)}, {quote(k)})," for g, v, k in others]
    out += ["];", "", "/// Every distinct shape.", "#[rustfmt::skip]",
            f"pub(super) static SHAPES: [Shape; {len(table.shapes)}] = ["]
    out += [f"    {shape}, // {index}" for index, shape in enumerate(table.shapes)]
    out += ["];", "", "/// Every struct; its fields are adjacent in `FIELDS`.", "#[rustfmt::skip]",
            f"pub(super) static STRUCTS: [StructType; {len(table.structs)}] = ["]
    for index, (name, full, fields, defaults, _) in enumerate(table.structs):
        pairs = ", ".join(f"({quote(k)}, {quote(v)})" for k, v in defaults)
        out.append(f"    s({quote(name)}, {quote(full)}, {starts[index]}, {len(fields)}, &[{pairs}]), // {index}")
    out += ["];", "", "/// The fields of all structs, sorted by name within each.", "#[rustfmt::skip]",
            f"pub(super) static FIELDS: [Field; {len(flat)}] = ["]
    for index, (name, _, fields, _, _) in enumerate(table.structs):
        out.append(f"    // {name}")
        for json_name, shape, flags, path, place, via in fields:
            row = f"{quote(json_name)}, {shape}, {flags}, {path}, {place}"
            out.append(f"    inlined({row}, {quote(via)})," if via else f"    f({row}),")
    out += ["];", ""]
    print(f"{len(found)} kinds, {len(table.shapes)} shapes, {len(table.structs)} structs, {len(flat)} fields",
          file=sys.stderr)
    return "\n".join(out)


# --- OpenAPI --------------------------------------------------------------------------------------------------------


class Documents:
    """The definitions converted to OpenAPI v3."""

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
        """Removes additions of the source to v2 definitions: `null` as a type, and the enums of kind and apiVersion."""
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
        """Returns the schema of a value of the Go type `go`. With `zero`, its zero value is the default."""
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


def openapi(rows, source, types):
    """Returns the definitions for all documents, by name."""
    documents, defs, table = Documents(types, source.defs), source.defs, Table(source)
    table.turn_to(source, {})
    for group, version, kind in sorted(kinds_of(rows)):
        table.shape(source.kinds[f"{group}/{version}/{kind}"])
    for _, name, *_ in table.structs:
        if name in defs:
            documents.add(name)
        if name + "List" in defs:
            documents.add(name + "List")
    for name in EXTRA_DEFINITIONS:
        documents.add("io.k8s.apimachinery.pkg.apis.meta.v1." + name)
    documents.add("io.k8s.apimachinery.pkg.version.Info")
    return documents.out


def shared(definitions):
    """Replaces a definition with the name of the same definition in a newer version of its group, if the two only
    differ in the version within names."""
    versions = {}
    for name in definitions:
        package, kind = name.rsplit(".", 1)
        group, _, version = package.rpartition(".")
        if re.fullmatch(r"v\d+((alpha|beta)\d+)?", version):
            versions.setdefault((group, kind), []).append(version)
    out = dict(definitions)
    for (group, kind), found in versions.items():
        for version in found:
            for newer in sorted((it for it in found if rank(it) > rank(version)), key=rank, reverse=True):
                text = json.dumps(definitions[f"{group}.{newer}.{kind}"], sort_keys=True)
                text = text.replace(f"{group}.{newer}.", f"{group}.{version}.")
                text = text.replace(f'"version": "{newer}"', f'"version": "{version}"')
                if json.loads(text) == definitions[f"{group}.{version}.{kind}"]:
                    out[f"{group}.{version}.{kind}"] = newer
                    break
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/generate"),
                        help="folder for downloads")
    args = parser.parse_args()
    work = args.work.resolve()
    by_minor, others, sources, types, all_gates, known, listings = {}, {}, {}, {}, {}, {}, []
    for minor, (release, described) in VERSIONS.items():
        folder = work / minor
        folder.mkdir(parents=True, exist_ok=True)
        types[minor] = go_types(folder, release)
        kubernetes = module(folder, "kubernetes", "1." + release)
        aggregated, core = discovery(kubernetes)
        listings.append(aggregated)
        known[minor] = registered(folder, release)
        all_gates[minor] = gates(folder, release, minor)
        by_minor[minor], off = served(aggregated, core)
        others[minor] = with_forms(kubernetes, by_minor[minor], off, types[minor], all_gates[minor],
                                   release)
        sources[minor] = Source(minor, types[minor], definitions(folder, described), all_gates[minor])
    (SCHEMA / "resources.rs").write_text(resource_tables(by_minor, others, groups_in_order(listings), known))
    (SCHEMA / "table.rs").write_text(type_tables(by_minor, others, sources))
    subprocess.run(["rustfmt", "--edition", "2024", SCHEMA / "resources.rs", SCHEMA / "table.rs"], check=True)
    (CRATE / "data").mkdir(exist_ok=True)
    definitions_of = {minor: shared(openapi([*by_minor[minor], *others[minor]], source, types[minor]))
                      for minor, source in sources.items()}
    minors = list(VERSIONS)
    at = minors.index(DEFAULT)
    write_definitions("openapi.json.gz", definitions_of[DEFAULT])
    # Every other version is written as the differences from the adjacent version that is closer to the default version.
    for way in (minors[:at + 1][::-1], minors[at:]):
        known = dict(definitions_of[DEFAULT])
        for minor in way[1:]:
            own = {name: value for name, value in definitions_of[minor].items() if known.get(name) != value}
            known.update(own)
            write_definitions(f"openapi-{minor}.json.gz", own)
    (CRATE / "src" / "main" / "feature_gates.txt").write_text(feature_gates(all_gates))


def write_definitions(name, definitions):
    document = json.dumps(definitions, sort_keys=True, separators=(",", ":")).encode()
    packed = gzip.compress(document, 9, mtime=0)
    (CRATE / "data" / name).write_bytes(packed)
    print(f"{name}: {len(definitions)} definitions, {len(document)} bytes, {len(packed)} packed", file=sys.stderr)


def feature_gates(all_gates):
    """Returns one line per gate: its name, and its new state in each version in which the state changes."""
    lines = []
    for name in sorted({name for of_minor in all_gates.values() for name in of_minor}):
        before, parts = "gone", []
        for minor, of_minor in all_gates.items():
            now = of_minor.get(name, "gone")
            if now != before:
                parts.append(f"{minor} {now}")
            before = now
        lines.append(f"{name} {'; '.join(parts)}\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
