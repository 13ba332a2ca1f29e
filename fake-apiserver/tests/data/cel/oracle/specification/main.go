// Prints the expressions of cel-spec's tests/simple/testdata as rules: specification FOLDER
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	expr "cel.dev/expr"
	test "cel.dev/expr/conformance/test"
	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
	"google.golang.org/protobuf/encoding/prototext"
)

func lit(v *expr.Value) (string, bool) {
	switch k := v.GetKind().(type) {
	case *expr.Value_NullValue:
		return "null", true
	case *expr.Value_BoolValue:
		return strconv.FormatBool(k.BoolValue), true
	case *expr.Value_Int64Value:
		return strconv.FormatInt(k.Int64Value, 10), true
	case *expr.Value_Uint64Value:
		return strconv.FormatUint(k.Uint64Value, 10) + "u", true
	case *expr.Value_DoubleValue:
		s := strconv.FormatFloat(k.DoubleValue, 'g', -1, 64)
		if strings.ContainsAny(s, "NI") {
			return "double('" + strings.Replace(s, "+", "", 1) + "')", true
		}
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s, true
	case *expr.Value_StringValue:
		return quote(k.StringValue), true
	case *expr.Value_BytesValue:
		var b strings.Builder
		b.WriteString("b'")
		for _, c := range k.BytesValue {
			fmt.Fprintf(&b, "\\x%02x", c)
		}
		b.WriteString("'")
		return b.String(), true
	case *expr.Value_ListValue:
		p := []string{}
		for _, e := range k.ListValue.GetValues() {
			s, ok := lit(e)
			if !ok {
				return "", false
			}
			p = append(p, s)
		}
		return "[" + strings.Join(p, ", ") + "]", true
	case *expr.Value_MapValue:
		p := []string{}
		for _, e := range k.MapValue.GetEntries() {
			a, ok := lit(e.GetKey())
			b, ok2 := lit(e.GetValue())
			if !ok || !ok2 {
				return "", false
			}
			p = append(p, a+": "+b)
		}
		return "{" + strings.Join(p, ", ") + "}", true
	case *expr.Value_TypeValue:
		return k.TypeValue, true
	}
	return "", false
}
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		if r == '\'' || r == '\\' {
			b.WriteByte('\\')
			b.WriteRune(r)
		} else if r < 32 || r == utf8.RuneError {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

func main() {
	files, _ := filepath.Glob(filepath.Join(os.Args[1], "*.textproto"))
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	all, aside := 0, 0
	for _, f := range files {
		b, _ := os.ReadFile(f)
		var t test.SimpleTestFile
		if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &t); err != nil {
			fmt.Fprintln(os.Stderr, f, err)
			continue
		}
		for _, s := range t.GetSection() {
			for _, c := range s.GetTest() {
				all++
				if len(c.GetBindings()) > 0 || len(c.GetTypeEnv()) > 0 || c.GetContainer() != "" || strings.Contains(c.GetExpr(), "TestAllTypes") {
					aside++
					continue
				}
				rules := []string{}
				if v := c.GetValue(); v != nil {
					l, ok := lit(v)
					if !ok {
						aside++
						continue
					}
					if l == "true" || l == "false" {
						rules = append(rules, c.GetExpr())
					}
					rules = append(rules, "dyn("+c.GetExpr()+") == dyn("+l+")")
				} else {
					rules = append(rules, "dyn("+c.GetExpr()+") == dyn(0)")
				}
				for _, r := range rules {
					enc.Encode(map[string]any{"schema": map[string]any{"type": "object", "properties": map[string]any{}}, "rule": r, "value": map[string]any{}})
				}
			}
		}
	}
	fmt.Fprintln(os.Stderr, all, aside)
}
