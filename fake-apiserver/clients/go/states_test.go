package drydock_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	drydock "drydock.dev/fake-apiserver/clients/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestTheHistoryContainsEachWriteAndItsAuthor(t *testing.T) {
	server := drydock.New(t)
	maps := kubernetes.NewForConfigOrDie(server.Config).CoreV1().ConfigMaps("default")
	object := configMap("a")
	object.Data = map[string]string{"color": "red"}
	created, err := maps.Create(context.Background(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Data["color"] = "blue"
	if _, err = maps.Update(context.Background(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	revisions := server.ReadHistory(string(created.UID)).Revisions
	if len(revisions) != 2 || revisions[0].Type != "ADDED" || revisions[1].Type != "MODIFIED" {
		t.Fatalf("the revisions are %+v", revisions)
	}
	if !slices.Contains(revisions[1].Changes, `data.color: "red" -> "blue"`) {
		t.Errorf("the changes are %q", revisions[1].Changes)
	}
	if by := revisions[1].By; by == nil || by.Verb != "update" {
		t.Errorf("the author is %+v", by)
	}
	later := server.ListChanges(revisions[0].Revision).Changes
	is := func(change drydock.Change) bool { return change.UID == string(created.UID) }
	if i := slices.IndexFunc(later, is); i < 0 || later[i].Revision != revisions[1].Revision {
		t.Errorf("the later changes are %+v", later)
	}
	if len(server.ListChanges(0).Changes) <= len(later) {
		t.Error("the history has no earlier changes")
	}
	if page := server.ReadTrace(); !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "configmaps") {
		t.Errorf("the trace is %.100s", page)
	}
}

// seen is the information about two ConfigMaps in a state, of which the first may own the second.
type seen struct {
	UID           string
	Listed, Shown bool
	Owned         []string
	Count         int
}

func see(server *drydock.Server, uid string, state drydock.State) (it seen) {
	it.UID = server.ReadObject(uid, state)["metadata"].(map[string]any)["uid"].(string)
	objects := server.ListObjects(state)
	it.Listed = slices.ContainsFunc(objects, func(it drydock.ObjectSummary) bool { return it.Name == "b" })
	rows := server.ReadTable("configmaps", "default", state).Rows
	it.Shown = slices.ContainsFunc(rows, func(it drydock.TableRow) bool { return it.Name == "b" })
	for _, dependent := range server.ReadRelated(uid, state).Owned {
		it.Owned = append(it.Owned, dependent.Name)
	}
	for _, kind := range server.ListKinds(state).Kinds {
		if kind.Kind == "ConfigMap" {
			it.Count = kind.Namespaces["default"]
		}
	}
	return it
}

func TestAnEarlierStateIsRead(t *testing.T) {
	server := drydock.New(t)
	owner, owned := configMap("a"), configMap("b")
	owner.UID = "uid/of a"
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID}}
	server.LoadObjects(owner)
	before := server.TakeSnapshot()
	version := server.ListKinds(drydock.State{}).ResourceVersion
	server.LoadObjects(owned)
	after := server.TakeSnapshot()

	uid := string(owner.UID)
	alone := see(server, uid, drydock.State{Snapshot: before})
	if !reflect.DeepEqual(alone, seen{UID: uid, Count: alone.Count}) {
		t.Errorf("the first state is %+v", alone)
	}
	owning := see(server, uid, drydock.State{})
	if !reflect.DeepEqual(owning, seen{uid, true, true, []string{"b"}, alone.Count + 1}) {
		t.Errorf("the second state is %+v", owning)
	}
	if it := see(server, uid, drydock.State{At: version}); !reflect.DeepEqual(it, alone) {
		t.Errorf("the state at the resourceVersion is %+v", it)
	}
	if it := see(server, uid, drydock.State{Snapshot: after}); !reflect.DeepEqual(it, owning) {
		t.Errorf("the second snapshot is %+v", it)
	}
	if it := server.SearchObjects("configmap default/b", drydock.State{}); it.Total != 1 || it.Objects[0].Name != "b" {
		t.Errorf("the search finds %+v", it)
	}
	server.LoadObjects(configMap("c"))
	if it := server.Diff(before, 0); !strings.Contains(it, "default/c") {
		t.Errorf("the changes are %s", it)
	}
	if it := server.Diff(before, after); strings.Contains(it, "default/c") || !strings.Contains(it, "default/b") {
		t.Errorf("the changes between the snapshots are %s", it)
	}
}

func TestAStoppedKubeletStartsNoPods(t *testing.T) {
	server := drydock.New(t, "--workers", "all")
	for _, name := range []string{"stopped", "running"} {
		server.LoadObjects(&corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}
	server.SetKubelet("stopped", "stopped")
	for _, name := range []string{"stopped", "running"} {
		server.LoadObjects(&corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		})
	}
	status := func(name string) any {
		table := server.ReadTable("pods", "default", drydock.State{})
		row := slices.IndexFunc(table.Rows, func(it drydock.TableRow) bool { return it.Name == name })
		column := slices.IndexFunc(table.Columns, func(it drydock.TableColumn) bool { return it.Name == "Status" })
		return table.Rows[row].Cells[column]
	}
	waitUntilRunning := func(name string) {
		for status(name) != "Running" {
			time.Sleep(50 * time.Millisecond)
		}
	}
	waitUntilRunning("running")
	// The kubelet sets the phase of the Pod, which is stored as it is.
	if it := status("stopped"); it != "" {
		t.Errorf("the Pod of the stopped kubelet is %v", it)
	}
	server.SetKubelet("stopped", "running")
	waitUntilRunning("stopped")
}
