package drydock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	drydock "drydock.dev/fake-apiserver/clients/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestMain(m *testing.M) {
	drydock.Controllers(m, map[string]drydock.Controller{"operator": operator})
}

// operator makes NAME-first and NAME-second for each ConfigMap that is a source; the second only right after the first.
func operator(ctx context.Context, config *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := clientset.CoreV1().ConfigMaps("default")
	sources := informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "role=source" })
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, sources)
	_, err = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			name := object.(*corev1.ConfigMap).Name
			for _, part := range []string{"first", "second"} {
				_, err := maps.Create(ctx, configMap(name+"-"+part), metav1.CreateOptions{})
				if errors.IsAlreadyExists(err) {
					return
				}
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// failing records the failure of a test.
type failing struct{ text string }

func (f *failing) Helper()        {}
func (f *failing) Cleanup(func()) {}
func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func failureOf(explore func(t drydock.TB)) (text string) {
	t := &failing{}
	defer func() {
		if recovered := recover(); recovered != nil && recovered != any(t) {
			panic(recovered)
		}
		text = t.text
	}()
	explore(t)
	return ""
}

func needsExplorer(t *testing.T) {
	if os.Getenv("DRYDOCK") != "" {
		return
	}
	const missing = "DRYDOCK does not name the command drydock"
	if os.Getenv("DRYDOCK_CLIENTS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

func TestACrashBetweenTwoWritesIsFound(t *testing.T) {
	needsExplorer(t)
	text := failureOf(func(t drydock.TB) { drydock.Explore(t, "testdata/scenario.yaml") })
	for _, expected := range []string{"crash operator", "web-second", "--replay 'crash-after=100@operator:create"} {
		if !strings.Contains(text, expected) {
			t.Errorf("%q is not in %s", expected, text)
		}
	}
}

func TestAPlanThatPassesIsLogged(t *testing.T) {
	needsExplorer(t)
	drydock.Explore(t, "testdata/scenario.yaml", "--replay", "restart@operator")
}

func TestAScenarioThatCannotBeUsedFails(t *testing.T) {
	needsExplorer(t)
	text := failureOf(func(t drydock.TB) { drydock.Explore(t, "testdata/missing.yaml") })
	if !strings.Contains(text, "exit status 2") || !strings.Contains(text, "missing.yaml") {
		t.Error(text)
	}
}
