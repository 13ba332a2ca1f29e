// Package goclients lets the Go clients of Kubernetes meet the fake: client-go and controller-runtime as they are, over
// sockets, against the server that KUBECONFIG leads to. tests/go.rs starts that server and runs this module.
package goclients

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// No test waits longer than this, whatever the server does.
const patience = 30 * time.Second

// cluster is a namespace of the server for one test, and what the test's clients sent.
type cluster struct {
	ctx       context.Context
	stop      context.CancelFunc
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	wire      *wire
}

// newCluster leads to the server with protobuf bodies, as the components of Kubernetes are configured.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	must(t, err)
	// Tests are not slowed down by the client's own limits.
	config.QPS = -1
	config.UserAgent = "updater/1.0"
	seen := &wire{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return seen.before(next) })

	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(typed)
	must(t, err)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	namespace, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "go-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}))
	})
	return &cluster{ctx: ctx, stop: cancel, config: config, client: client, namespace: namespace.Name, wire: seen}
}

// eventually waits until a condition holds.
func (c *cluster) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-c.ctx.Done():
			t.Fatalf("never came: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// request is what a test may ask about something that was sent.
type request struct {
	method, path, query, contentType string
}

// wire notes each request.
type wire struct {
	lock     sync.Mutex
	requests []request
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *wire) before(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		w.lock.Lock()
		w.requests = append(w.requests, request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type")})
		w.lock.Unlock()
		return next.RoundTrip(r)
	})
}

// count says how many requests of a method went to a path with this ending and had this in the query; a condition with
// ! in front must not be in the query.
func (w *wire) count(method, suffix, query string) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	wanted := !strings.HasPrefix(query, "!")
	count := 0
	for _, r := range w.requests {
		has := strings.Contains(r.query, strings.TrimPrefix(query, "!"))
		if r.method == method && strings.HasSuffix(r.path, suffix) && has == wanted {
			count++
		}
	}
	return count
}

// contentTypes is what the bodies of a method to a path with this ending were.
func (w *wire) contentTypes(method, suffix string) map[string]int {
	w.lock.Lock()
	defer w.lock.Unlock()
	types := map[string]int{}
	for _, r := range w.requests {
		if r.method == method && strings.HasSuffix(r.path, suffix) {
			types[r.contentType]++
		}
	}
	return types
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
