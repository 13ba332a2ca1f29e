package goclients

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
)

// typed is what every client of a typed clientset can do.
type typed[T metav1.Object, A any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
	Apply(context.Context, A, metav1.ApplyOptions) (T, error)
}

// kind is one object on its way through all verbs; content is the part of it that has to come back as it was sent.
type kind[T metav1.Object, A any] struct {
	resource string
	client   typed[T, A]
	object   T
	content  func(T) any
	applied  A
}

func TestTypedClients(t *testing.T) {
	c := newCluster(t)
	meta := metav1.ObjectMeta{Name: "one", Namespace: c.namespace, Labels: map[string]string{"app": "web"}}
	labels := map[string]string{"applied": "yes"}
	core, apps := c.client.CoreV1(), c.client.AppsV1()

	t.Run("ConfigMap", func(t *testing.T) {
		walk(t, c, kind[*corev1.ConfigMap, *corev1ac.ConfigMapApplyConfiguration]{
			"configmaps", core.ConfigMaps(c.namespace),
			&corev1.ConfigMap{
				ObjectMeta: meta,
				Data:       map[string]string{"text": "grüße\n", "empty": ""},
				BinaryData: map[string][]byte{"raw": {0, 0xff, 0x0a}},
			},
			func(it *corev1.ConfigMap) any { return []any{it.Data, it.BinaryData} },
			corev1ac.ConfigMap("one", c.namespace).WithLabels(labels),
		})
	})
	t.Run("Pod", func(t *testing.T) {
		walk(t, c, kind[*corev1.Pod, *corev1ac.PodApplyConfiguration]{
			"pods", core.Pods(c.namespace),
			&corev1.Pod{ObjectMeta: meta, Spec: podSpec()},
			func(it *corev1.Pod) any { return it.Spec },
			corev1ac.Pod("one", c.namespace).WithLabels(labels),
		})
	})
	t.Run("Deployment", func(t *testing.T) {
		walk(t, c, kind[*appsv1.Deployment, *appsv1ac.DeploymentApplyConfiguration]{
			"deployments", apps.Deployments(c.namespace),
			&appsv1.Deployment{ObjectMeta: meta, Spec: deploymentSpec()},
			func(it *appsv1.Deployment) any { return it.Spec },
			appsv1ac.Deployment("one", c.namespace).WithLabels(labels).
				WithSpec(appsv1ac.DeploymentSpec().WithMinReadySeconds(3)),
		})
	})
	t.Run("Lease", func(t *testing.T) {
		now := metav1.NewMicroTime(time.Date(2026, 7, 1, 12, 0, 0, 123456000, time.UTC))
		walk(t, c, kind[*coordinationv1.Lease, *coordinationv1ac.LeaseApplyConfiguration]{
			"leases", c.client.CoordinationV1().Leases(c.namespace),
			&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("me"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &now,
			}},
			func(it *coordinationv1.Lease) any { return it.Spec },
			coordinationv1ac.Lease("one", c.namespace).WithLabels(labels),
		})
	})
}

// walk takes an object through all verbs.
func walk[T metav1.Object, A any](t *testing.T, c *cluster, k kind[T, A]) {
	ctx, name := c.ctx, k.object.GetName()
	_, err := k.client.Create(ctx, k.object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
	created, err := k.client.Create(ctx, k.object, metav1.CreateOptions{FieldManager: "creator"})
	must(t, err)
	at := created.GetCreationTimestamp()
	if created.GetUID() == "" || created.GetResourceVersion() == "" || at.IsZero() {
		t.Fatalf("created without metadata: %v", created)
	}
	holds(t, "content", asJSON(t, k.content(created)), asJSON(t, k.content(k.object)))
	_, err = k.client.Create(ctx, k.object, metav1.CreateOptions{})
	equal(t, "created twice", errors.IsAlreadyExists(err), true)

	got, err := k.client.Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	if !equality.Semantic.DeepEqual(got, created) {
		t.Fatalf("created %v\ngot %v", created, got)
	}
	got.SetLabels(map[string]string{"app": "api"})
	_, err = k.client.Update(ctx, got, metav1.UpdateOptions{})
	must(t, err)
	_, err = k.client.Update(ctx, got, metav1.UpdateOptions{})
	equal(t, "a stale update is a conflict", errors.IsConflict(err), true)

	patches := map[types.PatchType]string{
		types.StrategicMergePatchType: `{"metadata":{"annotations":{"strategic":"1"}}}`,
		types.MergePatchType:          `{"metadata":{"annotations":{"merge":"1"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"1"}]`,
	}
	for kind, body := range patches {
		_, err = k.client.Patch(ctx, name, kind, []byte(body), metav1.PatchOptions{})
		must(t, err)
	}
	applied, err := k.client.Apply(ctx, k.applied, metav1.ApplyOptions{FieldManager: "applier"})
	must(t, err)
	equal(t, "labels", fmt.Sprint(applied.GetLabels()), "map[app:api applied:yes json:1]")
	equal(t, "annotations", fmt.Sprint(applied.GetAnnotations()), "map[merge:1 strategic:1]")
	equal(t, "managers", managers(applied), "applier=Apply creator=Update updater=Update")

	wrong := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("not this")}
	equal(t, "another one is not deleted", errors.IsConflict(k.client.Delete(ctx, name, wrong)), true)
	must(t, k.client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	_, err = k.client.Get(ctx, name, metav1.GetOptions{})
	equal(t, "it is gone", errors.IsNotFound(err), true)

	for method, path := range map[string]string{"POST": "/" + k.resource, "PUT": "/" + k.resource + "/" + name} {
		types := c.wire.contentTypes(method, path)
		if len(types) != 1 || types[runtime.ContentTypeProtobuf] == 0 {
			t.Fatalf("%s bodies have to be protobuf: %v", method, types)
		}
	}
}

// holds says that everything that was sent is there; the server may have added defaults, and elements at ends of lists.
func holds(t *testing.T, path string, got, sent any) {
	t.Helper()
	switch sent := sent.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key := range sent {
			holds(t, path+"."+key, got[key], sent[key])
		}
	case []any:
		got, _ := got.([]any)
		if len(got) < len(sent) {
			t.Fatalf("%s: got %v, sent %v", path, got, sent)
		}
		for i := range sent {
			holds(t, fmt.Sprintf("%s[%d]", path, i), got[i], sent[i])
		}
	default:
		// What is left out of an object that is always written, as the resources of a container.
		if sent != nil {
			equal(t, path, got, sent)
		}
	}
}

func asJSON(t *testing.T, object any) any {
	t.Helper()
	text, err := json.Marshal(object)
	must(t, err)
	var value any
	must(t, json.Unmarshal(text, &value))
	return value
}

// managers lists who owns fields, and how, in the order of the object.
func managers(object metav1.Object) string {
	var all []string
	for _, entry := range object.GetManagedFields() {
		all = append(all, fmt.Sprintf("%s=%s", entry.Manager, entry.Operation))
	}
	return strings.Join(all, " ")
}

func TestTypedStatus(t *testing.T) {
	c := newCluster(t)
	deployments := c.client.AppsV1().Deployments(c.namespace)
	sent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: deploymentSpec()}
	sent.Status.Replicas = 7
	created, err := deployments.Create(c.ctx, sent, metav1.CreateOptions{})
	must(t, err)
	equal(t, "a status is not created", created.Status.Replicas, 0)

	created.Status.Replicas = 3
	created.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Unix(1782900000, 0),
	}}
	created.Spec.Replicas = ptr.To[int32](9)
	updated, err := deployments.UpdateStatus(c.ctx, created, metav1.UpdateOptions{})
	must(t, err)
	equal(t, "replicas in the status", updated.Status.Replicas, 3)
	equal(t, "replicas in the spec", *updated.Spec.Replicas, 2)
	equal(t, "generation", updated.Generation, 1)
	equal(t, "time", updated.Status.Conditions[0].LastUpdateTime.Unix(), 1782900000)

	scale, err := deployments.GetScale(c.ctx, "web", metav1.GetOptions{})
	must(t, err)
	scale.Spec.Replicas = 5
	_, err = deployments.UpdateScale(c.ctx, "web", scale, metav1.UpdateOptions{})
	must(t, err)
	extracted, err := appsv1ac.ExtractDeploymentStatus(updated, "updater")
	must(t, err)
	equal(t, "nothing was applied to the status", extracted.Status == nil, true)
	scaled, err := deployments.Get(c.ctx, "web", metav1.GetOptions{})
	must(t, err)
	equal(t, "scaled", *scaled.Spec.Replicas, 5)
	equal(t, "generation of the scaled one", scaled.Generation, 2)
}

func TestTypedListsAndErrors(t *testing.T) {
	c := newCluster(t)
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	for i := range 5 {
		_, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("map-%d", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	first, err := maps.List(c.ctx, metav1.ListOptions{Limit: 2})
	must(t, err)
	equal(t, "a page", len(first.Items), 2)
	rest, err := maps.List(c.ctx, metav1.ListOptions{Continue: first.Continue})
	must(t, err)
	equal(t, "the rest", len(rest.Items), 3)
	err = maps.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=true"})
	must(t, err)
	left, err := maps.List(c.ctx, metav1.ListOptions{FieldSelector: "metadata.name!=map-4"})
	must(t, err)
	equal(t, "what is left", len(left.Items), 2)

	_, err = c.client.CoreV1().Pods(c.namespace).Create(c.ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}}, metav1.CreateOptions{})
	equal(t, "an invalid Pod", errors.IsInvalid(err), true)
	status, _ := err.(errors.APIStatus)
	fields := map[string]bool{}
	for _, cause := range status.Status().Details.Causes {
		fields[cause.Field] = true
	}
	equal(t, "its causes", fmt.Sprint(fields), "map[metadata.name:true spec.containers:true]")
}

func deploymentSpec() appsv1.DeploymentSpec {
	labels := map[string]string{"app": "web"}
	share := intstr.FromString("25%")
	return appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Strategy: appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &share, MaxUnavailable: ptr.To(intstr.FromInt32(1))},
		},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
	}
}

// podSpec has a field of every form that a body can hold: quantities, numbers or strings, lists by key, options, bytes.
func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: "default",
		NodeSelector:       map[string]string{"disk": "ssd"},
		SecurityContext:    &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsNonRoot: ptr.To(true)},
		Tolerations:        []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "main", Image: "example.org/main:1", Command: []string{"main", "--flag"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{
				{Name: "A", Value: "1"},
				{Name: "IP", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}},
				PeriodSeconds: 5,
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "data"}, DefaultMode: ptr.To[int32](0o400)},
		}}},
	}
}
