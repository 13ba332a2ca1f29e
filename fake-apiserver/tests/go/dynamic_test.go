package goclients

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

// Discovery answers what a mapper needs, in one request for /api and one for /apis.
func TestDiscovery(t *testing.T) {
	c := newCluster(t)
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	must(t, err)
	version, err := client.ServerVersion()
	must(t, err)
	equal(t, "version", version.Major+"."+version.Minor, "1.36")
	groups, resources, err := client.ServerGroupsAndResources()
	must(t, err)
	if len(groups) < 15 || len(resources) < 15 {
		t.Fatalf("%d groups, %d lists of resources", len(groups), len(resources))
	}
	equal(t, "requests for lists of resources", c.wire.count("GET", "/apis/apps/v1", ""), 0)
	preferred, err := client.ServerPreferredNamespacedResources()
	must(t, err)
	equal(t, "preferred", len(preferred) > 5, true)
	paths, err := client.OpenAPIV3().Paths()
	must(t, err)
	document, err := paths["apis/apps/v1"].Schema("application/json")
	must(t, err)
	equal(t, "the schema of Deployments", strings.Contains(string(document), "io.k8s.api.apps.v1.DeploymentSpec"), true)
	// v2, in protobuf, is what types are still read from that an applied configuration is extracted by.
	legacy, err := client.OpenAPISchema()
	must(t, err)
	equal(t, "the definitions of v2", len(legacy.GetDefinitions().GetAdditionalProperties()) > 400, true)
	extractor, err := applymetav1.NewUnstructuredExtractor(client)
	must(t, err)
	applied := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "a", "managedFields": []any{map[string]any{
				"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{"f:data": map[string]any{"f:k": map[string]any{}}},
			}},
		},
		"data": map[string]any{"k": "v", "other": "w"},
	}
	extracted, err := extractor.Extract(&unstructured.Unstructured{Object: applied}, "m")
	must(t, err)
	data, _, _ := unstructured.NestedStringMap(extracted.Object, "data")
	equal(t, "what m applied", fmt.Sprint(data), "map[k:v]")

	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	resource, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: "deploy"})
	must(t, err)
	equal(t, "deploy", resource.String(), "apps/v1, Resource=deployments")
	_, err = mapper.RESTMapping(schema.GroupKind{Group: "example.org", Kind: "Nothing"})
	equal(t, "a kind that is not served", meta.IsNoMatchError(err), true)
}

// Kinds found by discovery are applied, changed and watched without their types.
func TestDynamicClient(t *testing.T) {
	c := newCluster(t)
	client, err := dynamic.NewForConfig(c.config)
	must(t, err)
	found, err := discovery.NewDiscoveryClientForConfig(c.config)
	must(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	must(t, err)
	equal(t, "scope", mapping.Scope.Name(), meta.RESTScopeNameNamespace)
	deployments := client.Resource(mapping.Resource).Namespace(c.namespace)

	events := make(chan string, 100)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, c.namespace, nil)
	informer := factory.ForResource(mapping.Resource).Informer()
	_, err = informer.AddEventHandler(noteTo(events))
	must(t, err)
	factory.Start(c.ctx.Done())
	equal(t, "synced", cache.WaitForCacheSync(c.ctx.Done(), informer.HasSynced), true)

	applied, err := deployments.Apply(c.ctx, "web", manifest("example.org/web:1"), metav1.ApplyOptions{FieldManager: "a"})
	must(t, err)
	next(t, c, events, "add web ")
	strategy, _, _ := unstructured.NestedString(applied.Object, "spec", "strategy", "type")
	equal(t, "defaults", strategy, "RollingUpdate")
	again, err := deployments.Apply(c.ctx, "web", manifest("example.org/web:1"), metav1.ApplyOptions{FieldManager: "a"})
	must(t, err)
	equal(t, "applied again", again.GetResourceVersion(), applied.GetResourceVersion())

	_, err = deployments.Apply(c.ctx, "web", manifest("example.org/web:2"), metav1.ApplyOptions{FieldManager: "b"})
	equal(t, "another one's field is a conflict", errors.IsConflict(err), true)
	status, _ := err.(errors.APIStatus)
	equal(t, "its causes", fmt.Sprint(status.Status().Details.Causes),
		`[{FieldManagerConflict conflict with "a" .spec.template.spec.containers[name="web"].image}]`)
	forced := metav1.ApplyOptions{FieldManager: "b", Force: true}
	taken, err := deployments.Apply(c.ctx, "web", manifest("example.org/web:2"), forced)
	must(t, err)
	equal(t, "managers", managers(taken), "a=Apply b=Apply")
	next(t, c, events, "update web ")

	body := manifest("example.org/web:2")
	must(t, unstructured.SetNestedField(body.Object, int64(4), "status", "replicas"))
	_, err = deployments.ApplyStatus(c.ctx, "web", body, metav1.ApplyOptions{FieldManager: "status"})
	must(t, err)
	next(t, c, events, "update web ")
	must(t, deployments.Delete(c.ctx, "web", metav1.DeleteOptions{}))
	next(t, c, events, "delete web ")
}

func manifest(image string) *unstructured.Unstructured {
	labels := map[string]any{"app": "web"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": image}}},
			},
		},
	}}
}
