// Prints the Go types of Kubernetes' API as JSON, with facts that OpenAPI documents lack (pointers, omitempty, type
// names).
package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Type is a Go type. Elem and Fields refer to other types by their keys.
type Type struct {
	Kind   string  `json:"kind"`
	Print  string  `json:"print"`
	Name   string  `json:"name,omitempty"`
	Pkg    string  `json:"pkg,omitempty"`
	Custom bool    `json:"custom,omitempty"`
	IsZero bool    `json:"isZero,omitempty"`
	Elem   string  `json:"elem,omitempty"`
	Fields []Field `json:"fields,omitempty"`
}

// Field is a field of a struct.
type Field struct {
	JSON     string `json:"json"`
	Type     string `json:"type"`
	Inline   bool   `json:"inline,omitempty"`
	Empty    bool   `json:"omitempty,omitempty"`
	Zero     bool   `json:"omitzero,omitempty"`
	Strategy string `json:"patchStrategy,omitempty"`
	MergeKey string `json:"patchMergeKey,omitempty"`
	Protobuf string `json:"protobuf,omitempty"`
}

var (
	types       = map[string]*Type{}
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	zeroer      = reflect.TypeFor[interface{ IsZero() bool }]()
)

func key(t reflect.Type) string {
	if t.Name() != "" && t.PkgPath() != "" {
		return t.PkgPath() + "." + t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + key(t.Elem())
	case reflect.Slice:
		return "[]" + key(t.Elem())
	case reflect.Map:
		return "map[" + key(t.Key()) + "]" + key(t.Elem())
	}
	return t.String()
}

func visit(t reflect.Type) string {
	k := key(t)
	if types[k] != nil {
		return k
	}
	out := &Type{Kind: t.Kind().String(), Print: t.String(), Name: t.Name(), Pkg: t.PkgPath()}
	types[k] = out
	out.Custom = t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler)
	out.IsZero = t.Implements(zeroer) || t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(zeroer)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		out.Elem = visit(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			tag, ok := f.Tag.Lookup("json")
			if !ok && f.Anonymous {
				tag = ",inline"
			}
			parts := strings.Split(tag, ",")
			if parts[0] == "-" || parts[0] == "" && !f.Anonymous {
				continue
			}
			field := Field{JSON: parts[0], Type: visit(f.Type), Inline: parts[0] == "" && f.Anonymous}
			for _, option := range parts[1:] {
				field.Empty = field.Empty || option == "omitempty"
				field.Zero = field.Zero || option == "omitzero"
			}
			field.Strategy = f.Tag.Get("patchStrategy")
			field.MergeKey = f.Tag.Get("patchMergeKey")
			field.Protobuf = f.Tag.Get("protobuf")
			out.Fields = append(out.Fields, field)
		}
	}
	return k
}

// Comments contains the facts that are only in the comments of a package.
type Comments struct {
	// Enums contains the values of each `+enum` type, each with its comment.
	Enums map[string][][2]string `json:"enums"`
	// Defaults contains the `+default=` markers of fields, by type and JSON name.
	Defaults map[string]map[string]string `json:"defaults"`
	// Gates contains the `+featureGate=` markers of fields, by type and JSON name.
	Gates map[string]map[string]string `json:"gates"`
}

// read adds the comments of a package.
func (c *Comments) read(pkg string) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		panic(err)
	}
	parsed, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(dir)), nil, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	enums := map[string]bool{}
	each := func(visit func(*ast.GenDecl, ast.Spec)) {
		for _, files := range parsed {
			if strings.HasSuffix(files.Name, "_test") {
				continue
			}
			for _, file := range files.Files {
				for _, decl := range file.Decls {
					if gen, ok := decl.(*ast.GenDecl); ok {
						for _, spec := range gen.Specs {
							visit(gen, spec)
						}
					}
				}
			}
		}
	}
	each(func(gen *ast.GenDecl, spec ast.Spec) {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			return
		}
		for _, line := range strings.Split(raw(gen.Doc)+raw(t.Doc), "\n") {
			if strings.TrimSpace(line) == "+enum" {
				enums[t.Name.Name] = true
			}
		}
		if body, ok := t.Type.(*ast.StructType); ok {
			for _, field := range body.Fields.List {
				markers(c.Defaults, "+default=", pkg+"."+t.Name.Name, field)
				markers(c.Gates, "+featureGate=", pkg+"."+t.Name.Name, field)
			}
		}
	})
	each(func(_ *ast.GenDecl, spec ast.Spec) {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			return
		}
		name, ok := value.Type.(*ast.Ident)
		literal, isLiteral := value.Values[0].(*ast.BasicLit)
		if !ok || !isLiteral || !enums[name.Name] {
			return
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return
		}
		comment := strings.Join(strings.Fields(value.Doc.Text()), " ")
		comment = strings.TrimSpace(strings.TrimPrefix(comment, value.Names[0].Name))
		key := pkg + "." + name.Name
		c.Enums[key] = append(c.Enums[key], [2]string{text, comment})
	})
}

// markers adds the values after a marker in the comment of a field.
func markers(out map[string]map[string]string, marker, owner string, field *ast.Field) {
	for _, line := range strings.Split(raw(field.Doc), "\n") {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), marker)
		if !ok || field.Tag == nil || strings.HasPrefix(value, "ref(") {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if out[owner] == nil {
			out[owner] = map[string]string{}
		}
		out[owner][name] = value
	}
}

// raw returns a comment with its markers, which CommentGroup.Text drops.
func raw(group *ast.CommentGroup) string {
	var out strings.Builder
	if group != nil {
		for _, line := range group.List {
			out.WriteString(strings.TrimPrefix(line.Text, "//") + "\n")
		}
	}
	return out.String()
}

func main() {
	kinds := map[string]string{}
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(all); err != nil {
			panic(err)
		}
	}
	for gvk, t := range all.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			kinds[gvk.Group+"/"+gvk.Version+"/"+gvk.Kind] = visit(t)
		}
	}
	for _, object := range []any{metav1.DeleteOptions{}, metav1.ListMeta{}, metav1.PartialObjectMetadata{}} {
		t := reflect.TypeOf(object)
		kinds["meta.k8s.io/v1/"+t.Name()] = visit(t)
	}
	for _, object := range []any{metav1.APIResourceList{}, metav1.Patch{}, metav1.WatchEvent{}} {
		visit(reflect.TypeOf(object))
	}
	comments := Comments{
		Enums:    map[string][][2]string{},
		Defaults: map[string]map[string]string{},
		Gates:    map[string]map[string]string{},
	}
	read := map[string]bool{}
	for _, t := range types {
		if strings.HasPrefix(t.Pkg, "k8s.io/") && !read[t.Pkg] {
			read[t.Pkg] = true
			comments.read(t.Pkg)
		}
	}
	out := map[string]any{"kinds": kinds, "types": types, "comments": comments}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}
