// Generates rules over random schemas, typed and ill-typed, one JSON line each: gen SEED COUNT
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
)

type typ struct {
	kind string // bool int uint double string bytes duration timestamp list map object dyn optional quantity url ip cidr semver null
	elem *typ
	// for objects
	fields map[string]*typ
}

func t(kind string) *typ             { return &typ{kind: kind} }
func list(e *typ) *typ               { return &typ{kind: "list", elem: e} }
func mapOf(e *typ) *typ              { return &typ{kind: "map", elem: e} }
func opt(e *typ) *typ                { return &typ{kind: "optional", elem: e} }
func (a *typ) same(b *typ) bool {
	if a.kind != b.kind {
		return false
	}
	if a.kind == "object" {
		return a == b
	}
	return a.elem == nil || a.elem.same(b.elem)
}

type gen struct {
	r      *rand.Rand
	vars   []variable
	fresh  int
	broken float64
}
type variable struct {
	text string
	typ  *typ
	// whether it may be absent: guards with has
}

var scalars = []string{"bool", "int", "double", "string", "bytes", "duration", "timestamp", "dyn"}

// schema makes a random schema with its type and a value.
func (g *gen) schema(depth int) (map[string]any, *typ, any) {
	n := g.r.Intn(12)
	if depth <= 0 && n > 7 {
		n = g.r.Intn(8)
	}
	s := map[string]any{}
	bound := func(key string, max int) {
		if g.r.Intn(3) > 0 {
			s[key] = 1 + g.r.Intn(max)
		}
	}
	switch n {
	case 0:
		s["type"] = "boolean"
		return s, t("bool"), g.r.Intn(2) == 0
	case 1:
		s["type"] = "integer"
		return s, t("int"), g.r.Intn(7) - 2
	case 2:
		s["type"] = "number"
		return s, t("double"), []any{0.5, 1.0, -2.25, 3}[g.r.Intn(4)]
	case 3, 4:
		s["type"] = "string"
		bound("maxLength", 60)
		if g.r.Intn(5) == 0 {
			delete(s, "maxLength")
			s["enum"] = []string{"a", "abc", "x-y"}
		}
		return s, t("string"), []string{"", "a", "abc", "x-y", "Hello World", "10.0.0.1", "100Mi", "https://example.com:80/p?q=1", "1.2.3", "ünï", "a,b,c", "10.0.0.0/8", "::1"}[g.r.Intn(13)]
	case 5:
		s["type"] = "string"
		f := []string{"byte", "date", "date-time", "duration"}[g.r.Intn(4)]
		s["format"] = f
		switch f {
		case "byte":
			bound("maxLength", 50)
			return s, t("bytes"), []string{"", "YWJj", "AP8="}[g.r.Intn(3)]
		case "date":
			return s, t("timestamp"), []string{"2020-01-02", "1999-12-31"}[g.r.Intn(2)]
		case "date-time":
			return s, t("timestamp"), []string{"2020-01-02T03:04:05Z", "2020-06-02T03:04:05.678+02:00"}[g.r.Intn(2)]
		}
		return s, t("duration"), []string{"1h", "90s", "250ms", "36h"}[g.r.Intn(4)]
	case 6:
		s["x-kubernetes-int-or-string"] = true
		return s, t("dyn"), []any{"25%", 5, 0, "a"}[g.r.Intn(4)]
	case 7:
		s["type"] = "string"
		return s, t("string"), []string{"a", "b", "zz"}[g.r.Intn(3)]
	case 8, 9:
		s["type"] = "array"
		bound("maxItems", 20)
		count := g.r.Intn(4)
		if g.r.Intn(4) == 0 {
			// a map list
			s["x-kubernetes-list-type"] = "map"
			s["x-kubernetes-list-map-keys"] = []string{"k"}
			is, it, _ := g.schema(depth - 2)
			item := map[string]any{"type": "object", "required": []string{"k"}, "properties": map[string]any{"k": map[string]any{"type": "string", "maxLength": 10}, "v": is}}
			ot := &typ{kind: "object", fields: map[string]*typ{"k": t("string"), "v": it}}
			s["items"] = item
			vals := []any{}
			for i := 0; i < count; i++ {
				o := map[string]any{"k": "k" + strconv.Itoa(i)}
				if g.r.Intn(2) == 0 {
					o["v"] = g.valueFor(is)
				}
				vals = append(vals, o)
			}
			return s, list(ot), vals
		}
		is, it, _ := g.schema(depth - 1)
		s["items"] = is
		vals := []any{}
		for i := 0; i < count; i++ {
			vals = append(vals, g.valueFor(is))
		}
		if it.kind == "string" && is["format"] == nil && g.r.Intn(2) == 0 {
			s["x-kubernetes-list-type"] = "set"
			seen := map[any]bool{}
			u := []any{}
			for _, v := range vals {
				if !seen[v] {
					seen[v] = true
					u = append(u, v)
				}
			}
			vals = u
		}
		return s, list(it), vals
	case 10:
		s["type"] = "object"
		bound("maxProperties", 10)
		is, it, _ := g.schema(depth - 1)
		s["additionalProperties"] = is
		vals := map[string]any{}
		for i := 0; i < g.r.Intn(4); i++ {
			vals["k"+strconv.Itoa(i)] = g.valueFor(is)
		}
		return s, mapOf(it), vals
	}
	return g.object(depth - 1)
}

var names = []string{"s", "t", "i", "j", "n", "b", "l", "m", "o", "x-y", "if", "namespace", "a.b", "a__b", "q", "d"}

func (g *gen) object(depth int) (map[string]any, *typ, any) {
	props := map[string]any{}
	fields := map[string]*typ{}
	vals := map[string]any{}
	req := []string{}
	for i := 0; i < 2+g.r.Intn(5); i++ {
		name := names[g.r.Intn(len(names))]
		if _, ok := props[name]; ok {
			continue
		}
		ps, pt, pv := g.schema(depth)
		props[name] = ps
		fields[escape(name)] = pt
		if g.r.Intn(5) > 0 {
			vals[name] = pv
		}
		if g.r.Intn(3) == 0 {
			req = append(req, name)
			vals[name] = pv
		}
	}
	sort.Strings(req)
	s := map[string]any{"type": "object", "properties": props}
	if len(req) > 0 {
		s["required"] = req
	}
	return s, &typ{kind: "object", fields: fields}, vals
}

func escape(n string) string {
	switch n {
	case "if", "namespace":
		return "__" + n + "__"
	case "x-y":
		return "x__dash__y"
	case "a.b":
		return "a__dot__b"
	case "a__b":
		return "a__underscores__b"
	}
	return n
}

// valueFor makes another value of a schema.
func (g *gen) valueFor(s map[string]any) any {
	switch s["type"] {
	case "boolean":
		return g.r.Intn(2) == 0
	case "integer":
		return g.r.Intn(7) - 2
	case "number":
		return []any{0.5, 1.0, -2.25, 3}[g.r.Intn(4)]
	case "string":
		if e, ok := s["enum"].([]string); ok {
			return e[g.r.Intn(len(e))]
		}
		switch s["format"] {
		case "byte":
			return "YWJj"
		case "date":
			return "2020-01-02"
		case "date-time":
			return "2020-01-02T03:04:05Z"
		case "duration":
			return []string{"1h", "90s"}[g.r.Intn(2)]
		}
		return []string{"a", "b", "abc", "x-y", "10.0.0.1"}[g.r.Intn(5)]
	case "array":
		out := []any{}
		if s["x-kubernetes-list-type"] == "map" || s["x-kubernetes-list-type"] == "set" {
			return out
		}
		for i := 0; i < g.r.Intn(3); i++ {
			out = append(out, g.valueFor(s["items"].(map[string]any)))
		}
		return out
	case "object":
		out := map[string]any{}
		if ap, ok := s["additionalProperties"].(map[string]any); ok {
			for i := 0; i < g.r.Intn(3); i++ {
				out["k"+strconv.Itoa(i)] = g.valueFor(ap)
			}
			return out
		}
		if props, ok := s["properties"].(map[string]any); ok {
			keys := []string{}
			for k := range props {
				keys = append(keys, k)
			}
			sort.Strings(keys)
			for _, k := range keys {
				if g.r.Intn(4) > 0 {
					out[k] = g.valueFor(props[k].(map[string]any))
				}
			}
		}
		return out
	}
	return []any{"25%", 5}[g.r.Intn(2)]
}

// paths adds all places below a value as variables.
func (g *gen) paths(text string, ty *typ, depth int) {
	g.vars = append(g.vars, variable{text, ty})
	if depth == 0 {
		return
	}
	switch ty.kind {
	case "object":
		keys := []string{}
		for k := range ty.fields {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			name := k
			if g.r.Intn(4) == 0 {
				switch k {
				case "__if__":
					name = "if"
				case "__namespace__":
					name = "namespace"
				}
			}
			g.paths(text+"."+name, ty.fields[k], depth-1)
		}
	case "list":
		g.paths(text+"["+strconv.Itoa(g.r.Intn(3))+"]", ty.elem, depth-1)
	case "map":
		if g.r.Intn(2) == 0 {
			g.paths(text+"['k0']", ty.elem, depth-1)
		} else {
			g.paths(text+".k1", ty.elem, depth-1)
		}
	}
}

func (g *gen) pick(options ...func() string) string { return options[g.r.Intn(len(options))]() }
func (g *gen) str(options ...string) string         { return options[g.r.Intn(len(options))] }

func (g *gen) scalar() *typ { return t(scalars[g.r.Intn(7)]) }

// anyType is a random type an expression can have.
func (g *gen) anyType(depth int) *typ {
	n := g.r.Intn(14)
	switch {
	case n < 8:
		return g.scalar()
	case n == 8:
		return t("uint")
	case n == 9 && depth > 0:
		return list(g.anyType(depth - 1))
	case n == 10 && depth > 0:
		return mapOf(g.anyType(depth - 1))
	case n == 11 && len(g.vars) > 0:
		return g.vars[g.r.Intn(len(g.vars))].typ
	case n == 12:
		return t(g.str("quantity", "url", "ip", "cidr", "semver"))
	case n == 13 && depth > 0:
		return opt(g.anyType(depth - 1))
	}
	return t("string")
}

// of finds a variable of the type.
func (g *gen) of(want *typ) (string, bool) {
	found := []string{}
	for _, v := range g.vars {
		if v.typ.same(want) {
			found = append(found, v.text)
		}
	}
	if len(found) == 0 {
		return "", false
	}
	return found[g.r.Intn(len(found))], true
}

// kinds finds a variable of a kind.
func (g *gen) kind(kind string) (variable, bool) {
	found := []variable{}
	for _, v := range g.vars {
		if v.typ.kind == kind {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return variable{}, false
	}
	return found[g.r.Intn(len(found))], true
}

func (g *gen) with(name string, ty *typ, body func() string) string {
	g.vars = append(g.vars, variable{name, ty})
	if ty.kind == "object" {
		keys := []string{}
		for k := range ty.fields {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		n := 1
		for _, k := range keys {
			g.vars = append(g.vars, variable{name + "." + k, ty.fields[k]})
			n++
		}
		s := body()
		g.vars = g.vars[:len(g.vars)-n]
		return s
	}
	// the newer one is preferred
	g.vars = append(g.vars, variable{name, ty})
	s := body()
	g.vars = g.vars[:len(g.vars)-2]
	return s
}

func (g *gen) name() string {
	g.fresh++
	return string(rune('a'+g.fresh%20)) + "v"
}

// expr makes an expression of a type.
func (g *gen) expr(want *typ, depth int) string {
	if g.r.Float64() < g.broken {
		want = g.anyType(1)
	}
	if depth <= 0 || g.r.Intn(6) == 0 {
		if v, ok := g.of(want); ok && g.r.Intn(5) > 0 {
			return v
		}
		return g.literal(want, depth)
	}
	if g.r.Intn(5) == 0 {
		if v, ok := g.of(want); ok {
			return v
		}
	}
	d := depth - 1
	if g.r.Intn(12) == 0 {
		return g.expr(t("bool"), d) + " ? " + g.paren(want, d) + " : " + g.paren(want, d)
	}
	if g.r.Intn(14) == 0 {
		return g.paren(opt(want), d) + ".orValue(" + g.expr(want, d) + ")"
	}
	if g.r.Intn(20) == 0 {
		return g.paren(list(want), d) + "[" + g.expr(t("int"), d) + "]"
	}
	if g.r.Intn(30) == 0 {
		return g.paren(opt(want), d) + ".value()"
	}
	if g.r.Intn(30) == 0 {
		return g.paren(mapOf(want), d) + "[" + g.expr(t("string"), d) + "]"
	}
	switch want.kind {
	case "bool":
		return g.boolean(d)
	case "int":
		return g.integer(d)
	case "uint":
		return g.str("uint("+g.expr(t("int"), d)+")", g.paren(t("uint"), d)+" "+g.str("+", "-", "*", "/", "%")+" "+g.paren(t("uint"), d), "uint("+g.expr(t("string"), d)+")")
	case "double":
		return g.pick(
			func() string { return g.paren(want, d) + " " + g.str("+", "-", "*", "/") + " " + g.paren(want, d) },
			func() string { return "double(" + g.expr(t(g.str("int", "string", "uint", "double")), d) + ")" },
			func() string { return g.paren(t("quantity"), d) + ".asApproximateFloat()" },
			func() string { return g.paren(list(want), d) + "." + g.str("sum", "min", "max") + "()" },
			func() string { return "-" + g.paren(want, d) },
		)
	case "string":
		return g.text(d)
	case "bytes":
		return g.pick(
			func() string { return "bytes(" + g.expr(t(g.str("string", "bytes")), d) + ")" },
			func() string { return g.paren(want, d) + " + " + g.paren(want, d) },
		)
	case "duration":
		return g.pick(
			func() string { return "duration(" + g.expr(t(g.str("string", "duration")), d) + ")" },
			func() string { return g.paren(want, d) + g.str(" + ", " - ") + g.paren(want, d) },
			func() string { return g.paren(t("timestamp"), d) + " - " + g.paren(t("timestamp"), d) },
		)
	case "timestamp":
		return g.pick(
			func() string { return "timestamp(" + g.expr(t(g.str("string", "timestamp", "int")), d) + ")" },
			func() string { return g.paren(want, d) + g.str(" + ", " - ") + g.paren(t("duration"), d) },
		)
	case "list":
		return g.list(want, d)
	case "map":
		return g.mapping(want, d)
	case "optional":
		return g.optional(want, d)
	case "quantity":
		return g.pick(
			func() string { return "quantity(" + g.expr(t("string"), d) + ")" },
			func() string { return g.paren(want, d) + "." + g.str("add", "sub") + "(" + g.expr(t(g.str("quantity", "int")), d) + ")" },
		)
	case "url", "ip", "semver":
		return want.kind + "(" + g.expr(t("string"), d) + ")"
	case "cidr":
		return g.str("cidr("+g.expr(t("string"), d)+")", g.paren(want, d)+".masked()")
	case "dyn":
		return "dyn(" + g.expr(g.anyType(1), d) + ")"
	}
	return g.literal(want, d)
}

func (g *gen) paren(want *typ, depth int) string {
	s := g.expr(want, depth)
	if strings.ContainsAny(s, " ?") && !strings.HasPrefix(s, "'") || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "!") {
		return "(" + s + ")"
	}
	return s
}

func (g *gen) literal(want *typ, depth int) string {
	switch want.kind {
	case "bool":
		return g.str("true", "false")
	case "int":
		return g.str("0", "1", "2", "3", "-1", "10", "9223372036854775807")
	case "uint":
		return g.str("0u", "1u", "3u")
	case "double":
		return g.str("0.0", "1.5", "-2.25", "1e3")
	case "string":
		return g.str("''", "'a'", "'abc'", "'x-y'", "'1'", "'true'", "'10.0.0.1'", "'100Mi'", "'https://example.com:80/p?q=1'", "'1.2.3'", "'ünï'", "'a,b,c'", "'10.0.0.0/8'", "'1h'", "'2020-01-02T03:04:05Z'", "','", "'[a-z]+'")
	case "bytes":
		return g.str("b''", "b'abc'", "b'\\xff'")
	case "duration":
		return g.str("duration('1h')", "duration('90s')", "duration('250ms')")
	case "timestamp":
		return g.str("timestamp('2020-01-02T03:04:05Z')", "timestamp('2021-06-02T03:04:05.5+02:00')")
	case "list":
		n := g.r.Intn(4)
		if depth < -3 {
			n = 0
		}
		parts := []string{}
		for i := 0; i < n; i++ {
			parts = append(parts, g.expr(want.elem, depth-1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case "map":
		n := g.r.Intn(3)
		if depth < -3 {
			n = 0
		}
		parts := []string{}
		for i := 0; i < n; i++ {
			parts = append(parts, fmt.Sprintf("'k%d': %s", i, g.expr(want.elem, depth-1)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case "optional":
		if depth < -3 || g.r.Intn(3) == 0 {
			return "optional.none()"
		}
		return "optional.of(" + g.expr(want.elem, depth-1) + ")"
	case "quantity":
		return g.str("quantity('1')", "quantity('100Mi')", "quantity('1500m')")
	case "url":
		return g.str("url('https://example.com:80/p?q=1')", "url('/a/b')")
	case "ip":
		return g.str("ip('10.0.0.1')", "ip('::1')")
	case "cidr":
		return g.str("cidr('10.0.0.0/8')", "cidr('2001:db8::/32')")
	case "semver":
		return g.str("semver('1.2.3')", "semver('2.0.0-rc.1')")
	case "dyn":
		return "dyn(" + g.literal(g.scalar(), depth-1) + ")"
	case "object":
		if v, ok := g.kind("object"); ok {
			return v.text
		}
	}
	return g.str("null", "self", "self")
}

func (g *gen) boolean(d int) string {
	return g.pick(
		func() string { return g.paren(t("bool"), d) + g.str(" && ", " || ") + g.paren(t("bool"), d) },
		func() string { return g.paren(t("bool"), d) + g.str(" && ", " || ") + g.paren(t("bool"), d) + g.str(" && ", " || ") + g.paren(t("bool"), d) },
		func() string { return "!" + g.paren(t("bool"), d) },
		func() string {
			ty := g.anyType(1)
			return g.paren(ty, d) + g.str(" == ", " != ") + g.paren(ty, d)
		},
		func() string {
			if v, ok := g.kind(g.str("list", "map", "object")); ok {
				return g.paren(v.typ, d) + g.str(" == ", " != ") + g.paren(v.typ, d)
			}
			return "true"
		},
		func() string {
			ty := t(g.str("int", "double", "string", "bytes", "duration", "timestamp", "bool", "uint", "dyn"))
			return g.paren(ty, d) + " " + g.str("<", "<=", ">", ">=") + " " + g.paren(ty, d)
		},
		func() string {
			return g.paren(t(g.str("int", "double", "uint")), d) + " " + g.str("<", "<=", ">", ">=") + " " + g.paren(t(g.str("int", "double", "uint")), d)
		},
		func() string {
			ty := g.anyType(0)
			return g.paren(ty, d) + " in " + g.paren(list(ty), d)
		},
		func() string { return g.paren(t("string"), d) + " in " + g.paren(mapOf(g.anyType(0)), d) },
		func() string { return g.paren(t("string"), d) + "." + g.str("startsWith", "endsWith", "contains", "matches") + "(" + g.expr(t("string"), d) + ")" },
		func() string {
			paths := []string{}
			for _, v := range g.vars {
				if i := strings.LastIndex(v.text, "."); i > 0 && !strings.HasSuffix(v.text, "]") {
					paths = append(paths, v.text)
				}
			}
			if len(paths) == 0 {
				return "true"
			}
			p := paths[g.r.Intn(len(paths))]
			if g.r.Intn(2) == 0 {
				for _, v := range g.vars {
					if v.text == p {
						return "!has(" + p + ") || " + g.with2(v, func() string { return g.paren(t("bool"), d) })
					}
				}
			}
			return "has(" + p + ")"
		},
		func() string { return g.macro(d, g.str("all", "exists", "exists_one")) },
		func() string { return g.macro(d, g.str("all", "exists", "exists_one")) },
		func() string { return g.macro2(d, g.str("all", "exists", "exists_one", "existsOne")) },
		func() string { return g.paren(opt(g.anyType(0)), d) + ".hasValue()" },
		func() string { return g.str("isQuantity", "isURL", "isIP", "isCIDR", "isSemver", "bool") + "(" + g.expr(t("string"), d) + ")" },
		func() string { return g.paren(t("quantity"), d) + "." + g.str("isLessThan", "isGreaterThan") + "(" + g.expr(t("quantity"), d) + ")" },
		func() string { return g.paren(t("quantity"), d) + ".isInteger()" },
		func() string { return g.paren(t("ip"), d) + "." + g.str("isLoopback", "isUnspecified", "isGlobalUnicast", "isLinkLocalMulticast", "isLinkLocalUnicast") + "()" },
		func() string { return g.paren(t("cidr"), d) + "." + g.str("containsIP", "containsCIDR") + "(" + g.expr(t(g.str("string", "ip", "cidr")), d) + ")" },
		func() string { return g.paren(t("semver"), d) + "." + g.str("isLessThan", "isGreaterThan") + "(" + g.expr(t("semver"), d) + ")" },
		func() string { return g.paren(list(g.scalar()), d) + ".isSorted()" },
		func() string {
			ty := list(g.anyType(0))
			return "sets." + g.str("contains", "intersects", "equivalent") + "(" + g.expr(ty, d) + ", " + g.expr(ty, d) + ")"
		},
		func() string { return "type(" + g.expr(g.anyType(1), d) + ") == " + g.str("int", "string", "bool", "double", "list", "map", "null_type", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration") },
		func() string { return "ip.isCanonical(" + g.expr(t("string"), d) + ")" },
		func() string { return "format." + g.str("dns1123Label", "uuid", "date", "byte", "labelValue", "qualifiedName") + "().validate(" + g.expr(t("string"), d) + ").hasValue()" },
	)
}

func (g *gen) with2(v variable, body func() string) string {
	g.vars = append(g.vars, v, v, v)
	s := body()
	g.vars = g.vars[:len(g.vars)-3]
	return s
}

func (g *gen) source(d int) (string, *typ, bool) {
	if v, ok := g.kind(g.str("list", "list", "map")); ok && g.r.Intn(3) > 0 {
		if v.typ.kind == "map" {
			return v.text, t("string"), true
		}
		return v.text, v.typ.elem, false
	}
	e := g.anyType(0)
	if g.r.Intn(4) == 0 {
		return g.paren(mapOf(e), d), t("string"), true
	}
	return g.paren(list(e), d), e, false
}

func (g *gen) macro(d int, name string) string {
	src, e, _ := g.source(d)
	n := g.name()
	return src + "." + name + "(" + n + ", " + g.with(n, e, func() string { return g.expr(t("bool"), d) }) + ")"
}

func (g *gen) macro2(d int, name string) string {
	v, ok := g.kind(g.str("list", "map"))
	if !ok {
		return g.macro(d, "all")
	}
	first := t("int")
	if v.typ.kind == "map" {
		first = t("string")
	}
	a, b := g.name(), g.name()
	return v.text + "." + name + "(" + a + ", " + b + ", " + g.with(a, first, func() string {
		return g.with(b, v.typ.elem, func() string { return g.expr(t("bool"), d) })
	}) + ")"
}

func (g *gen) integer(d int) string {
	i := t("int")
	return g.pick(
		func() string { return g.paren(i, d) + " " + g.str("+", "-", "*", "/", "%") + " " + g.paren(i, d) },
		func() string { return "-" + g.paren(i, d) },
		func() string { return "size(" + g.expr(g.sized(), d) + ")" },
		func() string { return g.paren(g.sized(), d) + ".size()" },
		func() string { return "int(" + g.expr(t(g.str("string", "double", "uint", "timestamp", "int", "duration")), d) + ")" },
		func() string { return g.paren(t("string"), d) + "." + g.str("indexOf", "lastIndexOf") + "(" + g.expr(t("string"), d) + ")" },
		func() string { return g.paren(t("string"), d) + "." + g.str("indexOf", "lastIndexOf") + "(" + g.expr(t("string"), d) + ", " + g.expr(i, d) + ")" },
		func() string {
			ty := g.anyType(0)
			return g.paren(list(ty), d) + "." + g.str("indexOf", "lastIndexOf") + "(" + g.expr(ty, d) + ")"
		},
		func() string { return g.paren(t("timestamp"), d) + "." + g.str("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds") + "(" + g.str("", "", "'America/New_York'", "'+02:00'", "'Europe/Berlin'", "'UTC'") + ")" },
		func() string { return g.paren(t("duration"), d) + "." + g.str("getHours", "getMinutes", "getSeconds", "getMilliseconds") + "()" },
		func() string { return g.paren(list(i), d) + "." + g.str("sum", "min", "max") + "()" },
		func() string { return g.paren(t("quantity"), d) + "." + g.str("asInteger()", "compareTo("+g.expr(t("quantity"), d)+")") },
		func() string { return g.paren(t("semver"), d) + "." + g.str("major()", "minor()", "patch()", "compareTo("+g.expr(t("semver"), d)+")") },
		func() string { return g.paren(t("ip"), d) + ".family()" },
		func() string { return g.paren(t("cidr"), d) + ".prefixLength()" },
		func() string { return "sign(" + g.expr(t("quantity"), d) + ")" },
	)
}

func (g *gen) sized() *typ {
	switch g.r.Intn(4) {
	case 0:
		return t("string")
	case 1:
		return t("bytes")
	case 2:
		return mapOf(g.anyType(0))
	}
	return list(g.anyType(0))
}

func (g *gen) text(d int) string {
	s := t("string")
	return g.pick(
		func() string { return g.paren(s, d) + " + " + g.paren(s, d) },
		func() string { return "string(" + g.expr(t(g.str("int", "double", "bool", "bytes", "uint", "string", "timestamp", "duration", "ip", "cidr")), d) + ")" },
		func() string { return g.paren(s, d) + "." + g.str("lowerAscii", "upperAscii", "trim") + "()" },
		func() string { return g.paren(s, d) + ".substring(" + g.expr(t("int"), d) + ")" },
		func() string { return g.paren(s, d) + ".substring(" + g.str("0", "1", g.expr(t("int"), d)) + ", " + g.expr(t("int"), d) + ")" },
		func() string { return g.paren(s, d) + ".charAt(" + g.expr(t("int"), d) + ")" },
		func() string { return g.paren(s, d) + ".replace(" + g.expr(s, d) + ", " + g.expr(s, d) + ")" },
		func() string { return g.paren(s, d) + ".replace(" + g.expr(s, d) + ", " + g.expr(s, d) + ", " + g.str("0", "1", "-1", "2") + ")" },
		func() string { return g.paren(list(s), d) + ".join(" + g.str("", "','", g.expr(s, d)) + ")" },
		func() string { return g.paren(s, d) + ".find(" + g.expr(s, d) + ")" },
		func() string { return "strings.quote(" + g.expr(s, d) + ")" },
		func() string { return g.str("'%s'", "'%d'", "'%s-%v'", "'%.2f'", "'%x'", "'%%'", "'%b'", "'%o'", "'%e'", "'%X'") + ".format([" + g.expr(g.anyType(1), d) + "])" },
		func() string { return g.paren(t("url"), d) + "." + g.str("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath") + "()" },
		func() string { return g.paren(list(s), d) + "." + g.str("min", "max") + "()" },
	)
}

func (g *gen) list(want *typ, d int) string {
	options := []func() string{
		func() string { return g.paren(want, d) + " + " + g.paren(want, d) },
		func() string { n := g.name(); return g.paren(want, d) + ".filter(" + n + ", " + g.with(n, want.elem, func() string { return g.expr(t("bool"), d) }) + ")" },
		func() string {
			src, e, _ := g.source(d)
			n := g.name()
			return src + ".map(" + n + ", " + g.with(n, e, func() string { return g.expr(want.elem, d) }) + ")"
		},
		func() string {
			src, e, _ := g.source(d)
			n := g.name()
			return src + ".map(" + n + ", " + g.with(n, e, func() string { return g.expr(t("bool"), d) + ", " + g.expr(want.elem, d) }) + ")"
		},
		func() string {
			v, ok := g.kind(g.str("list", "map"))
			if !ok {
				return "[]"
			}
			first := t("int")
			if v.typ.kind == "map" {
				first = t("string")
			}
			a, b := g.name(), g.name()
			return v.text + ".transformList(" + a + ", " + b + ", " + g.with(a, first, func() string {
				return g.with(b, v.typ.elem, func() string { return g.expr(want.elem, d) })
			}) + ")"
		},
		func() string { return g.paren(want, d) + "." + g.str("distinct()", "reverse()") },
		func() string { return g.paren(want, d) + ".slice(" + g.str("0", "1", g.expr(t("int"), d)) + ", " + g.expr(t("int"), d) + ")" },
		func() string { return g.paren(list(want), d) + ".flatten()" },
		func() string { n := g.name(); return g.paren(want, d) + ".sortBy(" + n + ", " + g.with(n, want.elem, func() string { return g.expr(g.scalar(), d) }) + ")" },
	}
	switch want.elem.kind {
	case "string":
		options = append(options,
			func() string { return g.paren(t("string"), d) + ".split(" + g.expr(t("string"), d) + ")" },
			func() string { return g.paren(t("string"), d) + ".split(" + g.expr(t("string"), d) + ", " + g.str("0", "1", "2", "-1") + ")" },
			func() string { return g.paren(t("string"), d) + ".findAll(" + g.expr(t("string"), d) + ")" },
			func() string { return g.paren(t("string"), d) + ".findAll(" + g.expr(t("string"), d) + ", " + g.str("0", "1", "2", "-1") + ")" },
			func() string { return g.paren(want, d) + ".sort()" },
		)
	case "int":
		options = append(options, func() string { return "lists.range(" + g.str("0", "3", "5") + ")" }, func() string { return g.paren(want, d) + ".sort()" })
	case "double", "bool", "duration", "timestamp", "bytes":
		options = append(options, func() string { return g.paren(want, d) + ".sort()" })
	}
	return g.pick(options...)
}

func (g *gen) mapping(want *typ, d int) string {
	return g.pick(
		func() string { return g.literal(want, d) },
		func() string {
			v, ok := g.kind("map")
			if !ok {
				return "{}"
			}
			a, b := g.name(), g.name()
			filter := ""
			return v.text + ".transformMap(" + a + ", " + b + ", " + g.with(a, t("string"), func() string {
				return g.with(b, v.typ.elem, func() string {
					if g.r.Intn(2) == 0 {
						filter = g.expr(t("bool"), d) + ", "
					}
					return filter + g.expr(want.elem, d)
				})
			}) + ")"
		},
		func() string {
			v, ok := g.kind("list")
			if !ok {
				return "{}"
			}
			a, b := g.name(), g.name()
			return v.text + ".transformMapEntry(" + a + ", " + b + ", {string(" + a + "): " + g.with(a, t("int"), func() string {
				return g.with(b, v.typ.elem, func() string { return g.expr(want.elem, d) })
			}) + "})"
		},
	)
}

func (g *gen) optional(want *typ, d int) string {
	return g.pick(
		func() string { return g.literal(want, d) },
		func() string { return "optional.ofNonZeroValue(" + g.expr(want.elem, d) + ")" },
		func() string { return g.paren(want, d) + ".or(" + g.expr(want, d) + ")" },
		func() string { return g.paren(list(want.elem), d) + "[?" + g.expr(t("int"), d) + "]" },
		func() string { return g.paren(list(want.elem), d) + "." + g.str("first", "last") + "()" },
		func() string { return g.paren(mapOf(want.elem), d) + "[?" + g.expr(t("string"), d) + "]" },
		func() string {
			if p, ok := g.of(want.elem); ok {
				if i := strings.LastIndex(p, "."); i > 0 {
					return p[:i] + ".?" + p[i+1:]
				}
			}
			return g.literal(want, d)
		},
		func() string {
			e, n := g.anyType(0), g.name()
			return g.paren(opt(e), d) + ".optMap(" + n + ", " + g.with(n, e, func() string { return g.expr(want.elem, d) }) + ")"
		},
		func() string {
			e, n := g.anyType(0), g.name()
			return g.paren(opt(e), d) + ".optFlatMap(" + n + ", " + g.with(n, e, func() string { return g.expr(want, d) }) + ")"
		},
	)
}

func main() {
	seed, _ := strconv.ParseInt(os.Args[1], 10, 64)
	count, _ := strconv.Atoi(os.Args[2])
	g := &gen{r: rand.New(rand.NewSource(seed))}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	var s map[string]any
	var ty *typ
	for i := 0; i < count; i++ {
		var v any
		if i%20 == 0 || s == nil {
			s, ty, v = g.object(3)
		} else {
			v = g.valueFor(s)
		}
		g.vars = nil
		g.paths("self", ty, 4)
		g.broken = 0
		if g.r.Intn(3) == 0 {
			g.broken = 0.06
		}
		rule := g.expr(t("bool"), 2+g.r.Intn(3))
		if len(rule) > 400 {
			i--
			continue
		}
		enc.Encode(map[string]any{"schema": s, "rule": rule, "value": v})
	}
}
