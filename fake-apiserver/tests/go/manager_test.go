package goclients

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "goclients.drydock.example.com/finalizer"

// A manager reconciles a custom resource: finalizer, owned ConfigMap, status; and the garbage collector of the server
// takes the ConfigMap when its owner is gone.
func TestManager(t *testing.T) {
	logf.SetLogger(zap.New())
	c := newCluster(t)
	establish(t, c)
	cl, finalized, stop := startManager(t, c)
	defer stop()

	key := client.ObjectKey{Namespace: c.namespace, Name: "readme"}
	bad := &Document{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "bad"}}
	bad.Spec.Copies = 10
	equal(t, "a rule of the CRD", errors.IsInvalid(cl.Create(c.ctx, bad)), true)
	document := &Document{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	document.Spec.Title = "Read me"
	must(t, cl.Create(c.ctx, document))
	equal(t, "a default of the CRD", document.Spec.Copies, 1)

	title := func() string {
		found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(c.ctx, "readme", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return found.Data["title"]
	}
	current := func(generation int64) func() bool {
		return func() bool {
			must(t, cl.Get(c.ctx, key, document))
			return meta.IsStatusConditionTrue(document.Status.Conditions, "Ready") &&
				document.Status.ObservedGeneration == generation
		}
	}
	c.eventually(t, "the status of the first generation", current(1))
	equal(t, "title", title(), "Read me")
	before := document.copy()
	document.Spec.Title = "Read it"
	must(t, cl.Patch(c.ctx, document, client.MergeFrom(before)))
	c.eventually(t, "the status of the second generation", current(2))
	equal(t, "title", title(), "Read it")

	// What is owned is watched: it comes back.
	must(t, c.client.CoreV1().ConfigMaps(c.namespace).Delete(c.ctx, "readme", metav1.DeleteOptions{}))
	c.eventually(t, "the ConfigMap again", func() bool { return title() == "Read it" })

	must(t, cl.Delete(c.ctx, document))
	next(t, c, finalized, "readme")
	c.eventually(t, "the end of the Document", func() bool {
		return errors.IsNotFound(cl.Get(c.ctx, key, &Document{}))
	})
	c.eventually(t, "the end of the ConfigMap", func() bool { return title() == "" })
}

// establish installs the CRD, through the typed client of apiextensions, and waits until it is served.
func establish(t *testing.T, c *cluster) {
	config := rest.CopyConfig(c.config)
	config.ContentType = runtime.ContentTypeProtobuf
	clientset, err := apiextensions.NewForConfig(config)
	must(t, err)
	crds := clientset.ApiextensionsV1().CustomResourceDefinitions()
	_, err = crds.Create(c.ctx, documentCRD(), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, crds.Delete(context.Background(), documentCRD().Name, metav1.DeleteOptions{})) })
	c.eventually(t, "the established CRD", func() bool {
		crd, err := crds.Get(c.ctx, documentCRD().Name, metav1.GetOptions{})
		must(t, err)
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
}

// startManager runs a manager with leader election; its client does not read from the cache.
func startManager(t *testing.T, c *cluster) (client.Client, <-chan string, func()) {
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	scheme.AddKnownTypes(documents, &Document{}, &DocumentList{})
	metav1.AddToGroupVersion(scheme, documents)
	manager, err := ctrl.NewManager(c.config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{c.namespace: {}}},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "goclients",
		LeaderElectionNamespace:       c.namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	reconciler := &documentReconciler{Client: manager.GetClient(), scheme: scheme, finalized: make(chan string, 10)}
	builder := ctrl.NewControllerManagedBy(manager).For(&Document{}).Owns(&corev1.ConfigMap{})
	// The test may run more than once in a process, with -count.
	builder.WithOptions(controller.Options{SkipNameValidation: ptr.To(true)})
	must(t, builder.Complete(reconciler))
	direct, err := client.New(c.config, client.Options{Scheme: scheme})
	must(t, err)

	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stop := func() {
		cancel()
		must(t, <-ended)
	}
	return direct, reconciler.finalized, stop
}

type documentReconciler struct {
	client.Client
	scheme    *runtime.Scheme
	finalized chan string
}

// Reconcile is written as the book of kubebuilder has it.
func (r *documentReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	document := &Document{}
	if err := r.Get(ctx, request.NamespacedName, document); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !document.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(document, finalizer) {
			if err := r.Update(ctx, document); err != nil {
				return ctrl.Result{}, err
			}
			r.finalized <- document.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(document, finalizer) {
		if err := r.Update(ctx, document); err != nil {
			return ctrl.Result{}, err
		}
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: document.Namespace, Name: document.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.Data = map[string]string{"title": document.Spec.Title}
		return controllerutil.SetControllerReference(document, owned, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	document.Status.ObservedGeneration = document.Generation
	meta.SetStatusCondition(&document.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Written", ObservedGeneration: document.Generation,
	})
	return ctrl.Result{}, r.Status().Update(ctx, document)
}
