package drydock_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	drydock "drydock.dev/fake-apiserver/clients/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
	}
}

func TestFaultAffectsAsManyRequestsAsItsTimes(t *testing.T) {
	server := drydock.New(t)
	maps := kubernetes.NewForConfigOrDie(server.Config).CoreV1().ConfigMaps("default")
	server.InjectFault(drydock.Fault{Effect: "conflict", On: drydock.Filter{Verbs: []string{"create"}}, Times: 1})
	if _, err := maps.Create(context.Background(), configMap("a"), metav1.CreateOptions{}); !errors.IsConflict(err) {
		t.Fatalf("the first create returned %v, not a conflict", err)
	}
	if _, err := maps.Create(context.Background(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if faults := server.ListFaults(); len(faults) != 1 || faults[0].Hits != 1 {
		t.Errorf("the faults are %v", faults)
	}
	if journal := server.ReadJournal(0); len(journal.Entries) < 2 {
		t.Errorf("the journal is %v", journal)
	}
	server.EndFaults()
}

func TestAnInformerSurvivesALostLog(t *testing.T) {
	server := drydock.New(t, "--tls")
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(server.Config), 0)
	seen := make(chan string, 100)
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen <- object.(*corev1.ConfigMap).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	before := server.TakeSnapshot()
	server.ActOnWatches(drydock.Filter{Resource: "configmaps"}, "hold")
	server.LoadObjects(configMap("a"))
	server.Restart(true, 0)
	for {
		select {
		case name := <-seen:
			if name != "a" {
				continue
			}
			if !strings.Contains(server.Diff(before, 0), "a") {
				t.Error("nothing has changed")
			}
			return
		case <-time.After(30 * time.Second):
			t.Fatal("the informer has not seen it")
		}
	}
}

func TestEveryOperationHasAMethodAndEveryMethodIsAnOperation(t *testing.T) {
	server := drydock.New(t)
	names := map[string]bool{}
	for _, path := range server.Describe()["paths"].(map[string]any) {
		for method, operation := range path.(map[string]any) {
			if method == "parameters" {
				continue
			}
			name := operation.(map[string]any)["operationId"].(string)
			names[strings.ToUpper(name[:1])+name[1:]] = true
		}
	}
	methods := reflect.TypeOf(server)
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if !names[name] {
			t.Errorf("the method %s is no operation", name)
		}
		delete(names, name)
	}
	for name := range names {
		t.Errorf("there is no method %s", name)
	}
}
