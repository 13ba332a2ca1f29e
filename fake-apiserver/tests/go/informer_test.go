package goclients

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// An informer fills its cache by watching alone (the default since 1.35), or by a list and a watch.
func TestSharedInformer(t *testing.T) {
	cases := []struct {
		name                          string
		watchList                     bool
		lists, streams, plainsAtLeast int
	}{
		{"WatchList", true, 0, 1, 0},
		{"WithoutWatchList", false, 1, 0, 1},
	}
	for _, it := range cases {
		t.Run(it.name, func(t *testing.T) {
			if !features.FeatureGates().Enabled(features.WatchListClient) {
				t.Fatal("client-go has watch-list on by default")
			}
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, it.watchList)
			c := newCluster(t)
			follow(t, c)
			equal(t, "lists", c.wire.count("GET", "/configmaps", "!watch=true"), it.lists)
			equal(t, "watches with initial events", c.wire.count("GET", "/configmaps", "sendInitialEvents=true"), it.streams)
			if c.wire.count("GET", "/configmaps", "!sendInitialEvents")-it.lists < it.plainsAtLeast {
				t.Fatal("it did not watch")
			}
		})
	}
}

// follow lets an informer sync with what is there and see what becomes of it.
func follow(t *testing.T, c *cluster) {
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	_, err := maps.Create(c.ctx, configMap("old"), metav1.CreateOptions{})
	must(t, err)

	events := make(chan string, 100)
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace))
	informer := factory.Core().V1().ConfigMaps()
	_, err = informer.Informer().AddEventHandler(noteTo(events))
	must(t, err)
	factory.StartWithContext(c.ctx)
	defer factory.Shutdown()
	equal(t, "synced", cache.WaitForCacheSync(c.ctx.Done(), informer.Informer().HasSynced), true)
	next(t, c, events, "add old ")

	created, err := maps.Create(c.ctx, configMap("new"), metav1.CreateOptions{})
	must(t, err)
	next(t, c, events, "add new ")
	created.Data = map[string]string{"key": "value"}
	_, err = maps.Update(c.ctx, created, metav1.UpdateOptions{})
	must(t, err)
	next(t, c, events, "update new value")
	must(t, maps.Delete(c.ctx, "new", metav1.DeleteOptions{}))
	next(t, c, events, "delete new value")

	all, err := informer.Lister().ConfigMaps(c.namespace).List(labels.Everything())
	must(t, err)
	equal(t, "objects in the cache", len(all), 1)
	// Shutdown waits for the watches, which end with the context.
	c.stop()
}

// An informer of metadata alone asks for PartialObjectMetadata.
func TestMetadataInformer(t *testing.T) {
	c := newCluster(t)
	client, err := metadata.NewForConfig(c.config)
	must(t, err)
	events := make(chan string, 100)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, c.namespace, nil)
	informer := factory.ForResource(resource).Informer()
	_, err = informer.AddEventHandler(noteTo(events))
	must(t, err)
	factory.Start(c.ctx.Done())
	equal(t, "synced", cache.WaitForCacheSync(c.ctx.Done(), informer.HasSynced), true)

	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	_, err = maps.Create(c.ctx, configMap("new"), metav1.CreateOptions{})
	must(t, err)
	next(t, c, events, "add new ")
	must(t, maps.Delete(c.ctx, "new", metav1.DeleteOptions{}))
	next(t, c, events, "delete new ")
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func noteTo(events chan<- string) cache.ResourceEventHandlerFuncs {
	note := func(event string, object any) {
		value := ""
		if it, ok := object.(*corev1.ConfigMap); ok {
			value = it.Data["key"]
		}
		events <- event + " " + object.(metav1.Object).GetName() + " " + value
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("add", object) },
		UpdateFunc: func(_, object any) { note("update", object) },
		DeleteFunc: func(object any) { note("delete", object) },
	}
}

// next waits for the next event, which has to be this one.
func next(t *testing.T, c *cluster, events <-chan string, want string) {
	t.Helper()
	select {
	case got := <-events:
		equal(t, "event", got, want)
	case <-c.ctx.Done():
		t.Fatalf("never came: %s", want)
	}
}
