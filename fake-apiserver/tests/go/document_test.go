package goclients

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var documents = schema.GroupVersion{Group: "goclients.drydock.example.com", Version: "v1"}

// Document is a custom resource: a title that has to be in a ConfigMap.
type Document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DocumentSpec   `json:"spec"`
	Status DocumentStatus `json:"status,omitempty"`
}

// DocumentSpec is what is wanted.
type DocumentSpec struct {
	Title string `json:"title"`
	// The server's default is 1.
	Copies int64 `json:"copies,omitempty"`
}

// DocumentStatus is what there is.
type DocumentStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DocumentList is what a list answers.
type DocumentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Document `json:"items"`
}

// DeepCopyObject is what a generator would write.
func (in *Document) DeepCopyObject() runtime.Object { return in.copy() }

func (in *Document) copy() *Document {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return &out
}

// DeepCopyObject is what a generator would write.
func (in *DocumentList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = nil
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].copy())
	}
	return &out
}

// documentCRD is the definition as it is sent.
func documentCRD() *apiextensionsv1.CustomResourceDefinition {
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	anything := true
	spec := object(map[string]apiextensionsv1.JSONSchemaProps{
		"title":  {Type: "string"},
		"copies": {Type: "integer", Format: "int64", Default: &apiextensionsv1.JSON{Raw: []byte("1")}},
	})
	spec.Required = []string{"title"}
	spec.XValidations = apiextensionsv1.ValidationRules{{Rule: "self.copies < 10", Message: "too many copies"}}
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": spec, "status": {Type: "object", XPreserveUnknownFields: &anything},
	})
	status := &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "documents." + documents.Group
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: documents.Group,
		Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{
			Plural: "documents", Singular: "document", Kind: "Document", ListKind: "DocumentList",
		},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: documents.Version, Served: true, Storage: true,
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
			Subresources: status,
		}},
	}
	return crd
}
