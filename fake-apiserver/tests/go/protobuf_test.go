package goclients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"
)

// How many random objects of each kind are sent.
const objectsOfKind = 20

// A random object of any built-in kind is answered alike, created or refused, whether it was sent as protobuf or JSON.
func TestProtobufBodiesSayWhatJSONSays(t *testing.T) {
	c := newCluster(t)
	client, err := rest.HTTPClientFor(c.config)
	must(t, err)
	found, err := discovery.NewDiscoveryClientForConfig(c.config)
	must(t, err)
	_, lists, err := found.ServerGroupsAndResources()
	must(t, err)
	kinds, created := 0, 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		for _, resource := range list.APIResources {
			kind := version.WithKind(resource.Kind)
			if strings.Contains(resource.Name, "/") || !strings.Contains(resource.Verbs.String(), "create") ||
				!scheme.Scheme.Recognizes(kind) {
				continue
			}
			kinds++
			url := c.config.Host + collection(c, version, resource) + "?dryRun=All"
			for seed := range objectsOfKind {
				object := random(t, kind, int64(seed))
				asJSON := answer(t, client, url, "application/json", encoded(t, jsonSerializer, object))
				asProtobuf := answer(t, client, url, runtime.ContentTypeProtobuf, encoded(t, protobufSerializer, object))
				if path := difference("", asJSON, asProtobuf); path != "" {
					t.Errorf("%s, seed %d: %s", kind, seed, path)
				}
				if asJSON["kind"] != "Status" {
					created++
				}
			}
		}
	}
	t.Logf("%d kinds, %d objects were created, %d refused", kinds, created, kinds*objectsOfKind-created)
	if kinds < 50 || created < kinds {
		t.Errorf("too little was compared: %d kinds, %d objects", kinds, created)
	}
}

var (
	// The uid is in the selectors of Jobs, too.
	uid            = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	jsonSerializer = serializerjson.NewSerializerWithOptions(
		serializerjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serializerjson.SerializerOptions{})
	protobufSerializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
)

// random fills an object, but for its metadata, which is plain so that more is looked at than its name.
func random(t *testing.T, kind schema.GroupVersionKind, seed int64) runtime.Object {
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(seed), scheme.Codecs).
		NilChance(0.6).NumElements(1, 2).MaxDepth(12)
	filler.Funcs(func(meta *metav1.ObjectMeta, c randfill.Continue) { *meta = metav1.ObjectMeta{Name: "one"} })
	object, err := scheme.Scheme.New(kind)
	must(t, err)
	filler.Fill(object)
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object
}

func encoded(t *testing.T, serializer runtime.Encoder, object runtime.Object) []byte {
	var body bytes.Buffer
	must(t, serializer.Encode(object, &body))
	return body.Bytes()
}

func collection(c *cluster, version schema.GroupVersion, resource metav1.APIResource) string {
	path := "/apis/" + version.String()
	if version.Group == "" {
		path = "/api/" + version.Version
	}
	if resource.Namespaced {
		path += "/namespaces/" + c.namespace
	}
	return path + "/" + resource.Name
}

// answer is the object or the status that comes back, without what is different every time.
func answer(t *testing.T, client *http.Client, url, contentType string, body []byte) map[string]any {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	var object map[string]any
	must(t, json.Unmarshal(uid.ReplaceAll(text, []byte("UID")), &object))
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
		fields, _ := meta["managedFields"].([]any)
		for _, entry := range fields {
			delete(entry.(map[string]any), "time")
		}
	}
	return object
}

// difference is the first place where two values are not the same, and what they are there.
func difference(path string, left, right any) string {
	if reflect.DeepEqual(left, right) {
		return ""
	}
	switch left := left.(type) {
	case map[string]any:
		if right, ok := right.(map[string]any); ok {
			for key := range left {
				if found := difference(path+"."+key, left[key], right[key]); found != "" {
					return found
				}
			}
			for key := range right {
				if _, ok := left[key]; !ok {
					return difference(path+"."+key, nil, right[key])
				}
			}
		}
	case []any:
		if right, ok := right.([]any); ok && len(left) == len(right) {
			for i := range left {
				if found := difference(fmt.Sprintf("%s[%d]", path, i), left[i], right[i]); found != "" {
					return found
				}
			}
		}
	}
	return fmt.Sprintf("%s: JSON %v, protobuf %v", path, left, right)
}
