// The part of the benchmark `startup` that runs client-go.
//
//	client_go mirror URL        serves the Pods of the server at URL as protobuf and as JSON; prints its address
//	client_go client URL TYPE   runs a controller until its first reconcile; prints its figures
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	switch os.Args[1] {
	case "mirror":
		mirror(os.Args[2])
	case "client":
		client(os.Args[2], os.Args[3])
	}
}

// mirror lists the Pods once, encodes the list, and answers every list with it. Watches stay silent.
func mirror(url string) {
	answer, err := http.Get(url + "/api/v1/pods")
	must(err)
	var pods corev1.PodList
	must(json.NewDecoder(answer.Body).Decode(&pods))
	var encoded bytes.Buffer
	pods.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	must(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&pods, &encoded))
	text, err := json.Marshal(&pods)
	must(err)
	pods = corev1.PodList{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println("http://" + listener.Addr().String())
	must(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case query.Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.Contains(r.Header.Get("Accept"), apiruntime.ContentTypeProtobuf):
			w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf)
			w.Write(encoded.Bytes())
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Write(text)
		}
	})))
}

// client runs an informer, a queue and a worker until the worker has its first key.
func client(url, contentType string) {
	began, cpu := time.Now(), cpuSeconds()
	config := &rest.Config{Host: url, ContentConfig: rest.ContentConfig{ContentType: contentType}}
	clientset, err := kubernetes.NewForConfig(config)
	must(err)
	factory := informers.NewSharedInformerFactory(clientset, 0)
	pods := factory.Core().V1().Pods().Informer()
	if os.Getenv("CUT") != "" {
		must(pods.SetTransform(func(object any) (any, error) {
			object.(metav1.Object).SetManagedFields(nil)
			return object, nil
		}))
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		key, err := cache.MetaNamespaceKeyFunc(object)
		must(err)
		queue.Add(key)
	}})
	must(err)
	ctx := context.Background()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		os.Exit(1)
	}
	queue.Get()
	wall, used, peak := time.Since(began).Seconds(), cpuSeconds()-cpu, kilobytes("VmHWM:")
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	fmt.Printf("%.3f %.3f %d %d\n", used, wall, memory.HeapAlloc, peak*1024)
	runtime.KeepAlive(pods)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// kilobytes reads a line of /proc/self/status.
func kilobytes(name string) (count int64) {
	text, err := os.ReadFile("/proc/self/status")
	must(err)
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			fmt.Sscan(rest, &count)
		}
	}
	return count
}
