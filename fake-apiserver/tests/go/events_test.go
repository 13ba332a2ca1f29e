package goclients

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// What is said three times is one Event that counts.
func TestEventRecorder(t *testing.T) {
	c := newCluster(t)
	pod := involved(t, c)
	broadcaster := record.NewBroadcaster(record.WithContext(c.ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "go-test"})
	for range 3 {
		recorder.Eventf(pod, corev1.EventTypeWarning, "Failed", "it is %s", "broken")
	}

	// Events can be selected by what they are about.
	selector := metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name + ",reason=Failed,type=Warning"}
	var event corev1.Event
	c.eventually(t, "an Event that counts to three", func() bool {
		list, err := c.client.CoreV1().Events(c.namespace).List(c.ctx, selector)
		must(t, err)
		if len(list.Items) != 1 {
			return false
		}
		event = list.Items[0]
		return event.Count == 3
	})
	equal(t, "message", event.Message, "it is broken")
	equal(t, "uid", event.InvolvedObject.UID, pod.UID)
	equal(t, "component", event.Source.Component, "go-test")
	equal(t, "component of the new form", event.ReportingController, "go-test")
}

// The newer recorder makes a series of it.
func TestEventSeries(t *testing.T) {
	c := newCluster(t)
	pod := involved(t, c)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	must(t, broadcaster.StartRecordingToSinkWithContext(c.ctx))
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "drydock.example.com/go-test")

	record := func() {
		recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Started", "Starting", "it %s", "started")
	}
	record()
	stored := func() int {
		list, err := c.client.EventsV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{})
		must(t, err)
		return len(list.Items)
	}
	c.eventually(t, "the Event", func() bool { return stored() == 1 })
	record()
	c.eventually(t, "its series", func() bool {
		list, err := c.client.EventsV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{})
		must(t, err)
		return len(list.Items) == 1 && list.Items[0].Series != nil && list.Items[0].Series.Count == 2
	})
	// It is the same object in the older API.
	list, err := c.client.CoreV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{})
	must(t, err)
	equal(t, "Events", len(list.Items), 1)
	equal(t, "message", list.Items[0].Message, "it started")
	equal(t, "what it is about", list.Items[0].InvolvedObject.UID, pod.UID)
}

func involved(t *testing.T, c *cluster) *corev1.Pod {
	pod, err := c.client.CoreV1().Pods(c.namespace).Create(c.ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: podSpec()}, metav1.CreateOptions{})
	must(t, err)
	return pod
}
