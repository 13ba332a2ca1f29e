// Prints the Go types of Kubernetes' API as JSON: what no OpenAPI document says (pointers, omitempty, type names).
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Type is one Go type; Elem and Fields name further types of the table.
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

// Field is one field of a struct.
type Field struct {
	JSON     string `json:"json"`
	Type     string `json:"type"`
	Inline   bool   `json:"inline,omitempty"`
	Empty    bool   `json:"omitempty,omitempty"`
	Zero     bool   `json:"omitzero,omitempty"`
	Strategy string `json:"patchStrategy,omitempty"`
	MergeKey string `json:"patchMergeKey,omitempty"`
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
		return "map[" + t.Key().Kind().String() + "]" + key(t.Elem())
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
			out.Fields = append(out.Fields, field)
		}
	}
	return k
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
	for _, object := range []any{metav1.DeleteOptions{}, metav1.PartialObjectMetadata{}} {
		t := reflect.TypeOf(object)
		kinds["meta.k8s.io/v1/"+t.Name()] = visit(t)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"kinds": kinds, "types": types}); err != nil {
		panic(err)
	}
}
