// Package envtest starts a control plane as every Go operator's suite does, and changes nothing of it: the programs are
// those of KUBEBUILDER_ASSETS.
package envtest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// start starts a control plane and stops it with the test.
func start(t *testing.T, environment *envtest.Environment) *rest.Config {
	t.Helper()
	begun := time.Now()
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Logf("started in %v", time.Since(begun))
	t.Cleanup(func() {
		begun := time.Now()
		if err := environment.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		t.Logf("stopped in %v", time.Since(begun))
	})
	return config
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func lamps() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "lamps.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "lamps", Singular: "lamp", Kind: "Lamp", ListKind: "LampList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"on": {Type: "boolean"}}},
					},
				}},
			}},
		},
	}
}

func TestDefinitionsAreInstalledAndServed(t *testing.T) {
	config := start(t, &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{lamps()}})
	c := newClient(t, config)
	lamp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Lamp",
		"metadata": map[string]any{"name": "desk", "namespace": "default"},
		"spec":     map[string]any{"on": true},
	}}
	if err := c.Create(context.Background(), lamp); err != nil {
		t.Fatal(err)
	}
	wrong := lamp.DeepCopy()
	wrong.SetName("wrong")
	wrong.SetResourceVersion("")
	wrong.Object["spec"] = map[string]any{"on": "yes"}
	if err := c.Create(context.Background(), wrong); !errors.IsInvalid(err) {
		t.Fatalf("the schema is not looked at: %v", err)
	}
}

func TestUsersHaveTheRightsOfTheirRoles(t *testing.T) {
	environment := &envtest.Environment{}
	admin := newClient(t, start(t, environment))
	ctx := context.Background()
	user, err := environment.ControlPlane.AddUser(envtest.User{Name: "jane", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jane := newClient(t, user.Config())
	pods := &corev1.PodList{}
	if err := jane.List(ctx, pods); !errors.IsForbidden(err) {
		t.Fatalf("jane has no rights yet: %v", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "devs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "devs"}},
	}
	if err := admin.Create(ctx, binding); err != nil {
		t.Fatal(err)
	}
	if err := jane.List(ctx, pods); err != nil {
		t.Fatal(err)
	}
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Skipf("there is no kubectl: %v", err)
	}
	stdout, stderr, err := kubectl.Run("auth", "can-i", "list", "pods")
	if err != nil {
		t.Skipf("kubectl: %v", err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(stdout); err != nil || strings.TrimSpace(text.String()) != "yes" {
		t.Errorf("kubectl auth can-i says %q, %v, %v", text.String(), err, stderr)
	}
}

func TestWhatAClusterHasIsThere(t *testing.T) {
	c := newClient(t, start(t, &envtest.Environment{}))
	for _, it := range []struct {
		name, namespace string
		object          client.Object
	}{
		{"cluster-admin", "", &rbacv1.ClusterRole{}},
		{"system:controller:deployment-controller", "", &rbacv1.ClusterRole{}},
		{"system:kube-controller-manager", "", &rbacv1.ClusterRoleBinding{}},
		{"extension-apiserver-authentication-reader", "kube-system", &rbacv1.Role{}},
		{"extension-apiserver-authentication", "kube-system", &corev1.ConfigMap{}},
		{"kube-apiserver-legacy-service-account-token-tracking", "kube-system", &corev1.ConfigMap{}},
		{"kubernetes", "", &networkingv1.ServiceCIDR{}},
		{"kubernetes", "default", &corev1.Service{}},
		{"kubernetes", "default", &corev1.Endpoints{}},
	} {
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: it.namespace, Name: it.name}, it.object); err != nil {
			t.Errorf("%s: %v", it.name, err)
		}
		if service, ok := it.object.(*corev1.Service); ok && service.Spec.ClusterIP != "10.0.0.1" {
			t.Errorf("the Service kubernetes is at %s", service.Spec.ClusterIP)
		}
		if cidr, ok := it.object.(*networkingv1.ServiceCIDR); ok && cidr.Spec.CIDRs[0] != "10.0.0.0/24" {
			t.Errorf("the range is %v", cidr.Spec.CIDRs)
		}
	}
}

func TestTokensOfServiceAccountsAreSignedByTheKeyOfTheControlPlane(t *testing.T) {
	environment := &envtest.Environment{}
	config := start(t, environment)
	c := newClient(t, config)
	ctx := context.Background()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "default"}}
	if err := c.Create(ctx, account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		t.Fatal(err)
	}
	bearer := rest.AnonymousClientConfig(config)
	bearer.BearerToken = request.Status.Token
	review := &authenticationv1.SelfSubjectReview{}
	if err := newClient(t, bearer).Create(ctx, review); err != nil {
		t.Fatal(err)
	}
	if name := review.Status.UserInfo.Username; name != "system:serviceaccount:default:operator" {
		t.Errorf("the token is %s's", name)
	}
	bearer.BearerToken = "x" + request.Status.Token
	if err := newClient(t, bearer).Create(ctx, review.DeepCopy()); !errors.IsUnauthorized(err) {
		t.Errorf("a broken token is good: %v", err)
	}
}

func TestFlagsOfItsUsersCount(t *testing.T) {
	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "RBAC").
		Set("service-cluster-ip-range", "10.9.8.0/24").
		Enable("anonymous-auth").
		Set("event-ttl", "2h")
	config := start(t, environment)
	c := newClient(t, config)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := c.Create(context.Background(), service); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(service.Spec.ClusterIP, "10.9.8.") {
		t.Errorf("the cluster IP is %s", service.Spec.ClusterIP)
	}
	anonymous := newClient(t, rest.AnonymousClientConfig(config))
	if err := anonymous.Get(context.Background(), client.ObjectKeyFromObject(service), service); !errors.IsForbidden(err) {
		t.Errorf("system:anonymous may read Services: %v", err)
	}
	other := &envtest.Environment{}
	other.ControlPlane.GetAPIServer().Configure().Set("no-such-flag", "1")
	if _, err := other.Start(); err == nil {
		t.Error("a flag that there is not is ignored")
	}
	_ = other.Stop()
}
