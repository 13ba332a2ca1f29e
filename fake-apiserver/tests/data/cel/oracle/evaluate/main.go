// Compiles and evaluates rules of a CRD schema as kube-apiserver 1.36 does.
// Input lines of JSON: {"schema":..., "rule":..., "message":bool, "optionalOldSelf":bool, "value":..., "old":...}; output lines {"error":..,"messageError":..,"estimate":..,"value":..,"cost":..}
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type in struct {
	Schema          json.RawMessage `json:"schema"`
	Rule            string          `json:"rule"`
	Root            bool            `json:"root"`
	OptionalOldSelf bool            `json:"optionalOldSelf"`
	Value           any             `json:"value"`
	Old             any             `json:"old"`
}
type out struct {
	Error    string `json:"error,omitempty"`
	Estimate uint64 `json:"estimate"`
	Value    any    `json:"value,omitempty"`
	EvalErr  string `json:"evalError,omitempty"`
	Cost     uint64 `json:"cost"`
}

func fix(v any) any {
	switch t := v.(type) {
	case json.Number:
		if i, err := t.Int64(); err == nil {
			return i
		}
		f, _ := t.Float64()
		return f
	case []any:
		for i := range t {
			t[i] = fix(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = fix(t[k])
		}
	}
	return v
}

func main() {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	sc := bufio.NewScanner(os.Stdin)
	sc.Buffer(make([]byte, 1<<24), 1<<24)
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	schemas := map[string]*schema.Structural{}
	for sc.Scan() {
		var i in
		d := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		d.UseNumber()
		if err := d.Decode(&i); err != nil {
			panic(err)
		}
		s, ok := schemas[string(i.Schema)]
		if !ok {
			var v1 apiextensionsv1.JSONSchemaProps
			if err := json.Unmarshal(i.Schema, &v1); err != nil {
				panic(err)
			}
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &internal, nil); err != nil {
				panic(err)
			}
			var err error
			s, err = schema.NewStructural(&internal)
			if err != nil {
				panic(err)
			}
			schemas[string(i.Schema)] = s
		}
		c := *s
		rule := apiextensionsv1.ValidationRule{Rule: i.Rule}
		if i.OptionalOldSelf {
			t := true
			rule.OptionalOldSelf = &t
		}
		c.XValidations = apiextensionsv1.ValidationRules{rule}
		var o out
		func() {
			defer func() {
				if r := recover(); r != nil {
					o.Error = fmt.Sprint("PANIC ", r)
				}
			}()
			res, err := cel.Compile(&c, model.SchemaDeclType(&c, i.Root), celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
			if err != nil {
				o.Error = "COMPILE " + err.Error()
				return
			}
			r := res[0]
			if r.Error != nil {
				o.Error = r.Error.Detail
				return
			}
			o.Estimate = r.MaxCost
			if r.Program == nil || i.Value == nil {
				return
			}
			vars := map[string]any{"self": cel.UnstructuredToVal(fix(i.Value), &c)}
			if i.Old != nil {
				vars["oldSelf"] = cel.UnstructuredToVal(fix(i.Old), &c)
			}
			val, det, err := r.Program.ContextEval(context.Background(), vars)
			if det != nil && det.ActualCost() != nil {
				o.Cost = *det.ActualCost()
			}
			if err != nil {
				o.EvalErr = err.Error()
				return
			}
			o.Value = val.Value()
		}()
		b, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		w.Write(b)
		w.WriteByte('\n')
	}
}
