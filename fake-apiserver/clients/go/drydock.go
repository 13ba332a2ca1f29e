// Package drydock starts a fake Kubernetes API server for a test, and injects faults into it.
//
//	func TestReconcile(t *testing.T) {
//		server := drydock.New(t, "--workers", "gc,namespace")
//		clientset := kubernetes.NewForConfigOrDie(server.Config)
//		server.InjectFault(drydock.Fault{Effect: "conflict", On: drydock.Filter{Verbs: []string{"update"}}, Times: 1})
//		...
//	}
//
// Each method that sends a request calls the operation of the control API with the same name;
// GET /_fake/openapi.json describes the operations. If the server refuses a request, the test fails.
package drydock

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TB is the part of testing.TB that this package uses; GinkgoT() also implements it.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Server is a running server.
type Server struct {
	// Config is the configuration of client-go for the server, with the permissions of an administrator.
	Config *rest.Config
	// Kubeconfig is the path of a kubeconfig for other clients.
	Kubeconfig string
	// URL is the address at which the server listens.
	URL string

	t      TB
	token  string
	client *http.Client
}

// Start starts a server for the test and returns the configuration of client-go; see New.
func Start(t TB, args ...string) *rest.Config {
	t.Helper()
	return New(t, args...).Config
}

// New starts a server on a free port, with these options of fake-apiserver, and ends it with the test. The program is
// the path in FAKE_APISERVER, or the first fake-apiserver in PATH.
func New(t TB, args ...string) *Server {
	t.Helper()
	program, err := find()
	if err != nil {
		t.Fatalf("drydock: %v", err)
	}
	folder, err := os.MkdirTemp("", "drydock-")
	if err != nil {
		t.Fatalf("drydock: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	server := &Server{Kubeconfig: filepath.Join(folder, "kubeconfig"), t: t, token: rand.Text()}
	own := []string{"--exit-with-parent", "--control", "--control-token", server.token, "--kubeconfig", server.Kubeconfig}
	command := exec.Command(program, append(own, args...)...)
	var log bytes.Buffer
	command.Stderr = &log
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("drydock: cannot start %s: %v", program, err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	url, ready := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ready {
		_ = command.Wait()
		t.Fatalf("drydock: %s did not start: %s", program, log.String())
	}
	server.URL = url
	if server.Config, err = clientcmd.BuildConfigFromFlags("", server.Kubeconfig); err != nil {
		t.Fatalf("drydock: %v", err)
	}
	if server.client, err = rest.HTTPClientFor(server.Config); err != nil {
		t.Fatalf("drydock: %v", err)
	}
	return server
}

// find returns the path of the program.
func find() (string, error) {
	if program := os.Getenv("FAKE_APISERVER"); program != "" {
		return program, nil
	}
	program, err := exec.LookPath("fake-apiserver")
	if err != nil {
		return "", fmt.Errorf("no program fake-apiserver for %s/%s: a Go module cannot contain it, and it is not in PATH; "+
			"download it from a release, run `cargo install fake-apiserver` or `pip install drydock-fake-apiserver`, "+
			"or set FAKE_APISERVER", runtime.GOOS, runtime.GOARCH)
	}
	return program, nil
}

// Filter selects requests and watches; fields that are not set match everything. Clients are named by their User-Agent
// or its part before the first slash: "manager" for "manager/v0.1 (linux)".
type Filter struct {
	Verbs         []string `json:"verbs,omitempty"`
	Resource      string   `json:"resource,omitempty"`
	Namespace     string   `json:"namespace,omitempty"`
	Name          string   `json:"name,omitempty"`
	Client        string   `json:"client,omitempty"`
	ExceptClients []string `json:"exceptClients,omitempty"`
}

// Failure is an error response.
type Failure struct {
	Code              int    `json:"code"`
	Reason            string `json:"reason,omitempty"`
	Message           string `json:"message,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`
	Applied           bool   `json:"applied,omitempty"`
}

// Fault is an effect and the requests that it affects. An effect is a word such as "conflict" or "refuse", a map such
// as {"delayMs": 20}, or Status(503).
type Fault struct {
	Effect      any      `json:"effect"`
	On          Filter   `json:"on"`
	Skip        int      `json:"skip,omitempty"`
	Times       int      `json:"times,omitempty"`
	Probability *float64 `json:"probability,omitempty"`
}

// Status is an effect: the request fails with this code.
func Status(code int) any {
	return map[string]any{"status": Failure{Code: code}}
}

// InForce is an active fault, with the number of requests that it has affected.
type InForce struct {
	ID    uint64 `json:"id"`
	Fault string `json:"fault"`
	Hits  int    `json:"hits"`
}

// Watch is an open watch.
type Watch struct {
	ID                  uint64 `json:"id"`
	Client              string `json:"client"`
	Group               string `json:"group"`
	Resource            string `json:"resource"`
	Namespace           string `json:"namespace"`
	Delivered           uint64 `json:"delivered"`
	LastResourceVersion uint64 `json:"lastResourceVersion"`
	Behind              int    `json:"behind"`
	IsSilent            bool   `json:"isSilent"`
	IsHeld              bool   `json:"isHeld"`
	Held                []any  `json:"held"`
}

// Entry is an entry of the journal: a request or a watch event, as the control API shows it.
type Entry struct {
	Request map[string]any `json:"request,omitempty"`
	Event   map[string]any `json:"event,omitempty"`
}

// Journal is a page of the journal; Next is the position for the next request.
type Journal struct {
	First   uint64  `json:"first"`
	Next    uint64  `json:"next"`
	Total   uint64  `json:"total"`
	Entries []Entry `json:"entries"`
}

// Pods selects the Pods of a script: all Pods, the Pods with these labels, or a single Pod.
type Pods struct {
	Labels    string `json:"labels,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// InjectFault injects a fault and returns its number.
func (s *Server) InjectFault(fault Fault) uint64 {
	s.t.Helper()
	var answer struct{ ID uint64 }
	s.ask("POST", "/faults", fault, &answer)
	return answer.ID
}

// ListFaults returns the active faults.
func (s *Server) ListFaults() (faults []InForce) {
	s.t.Helper()
	s.ask("GET", "/faults", nil, &faults)
	return faults
}

// EndFault ends a fault.
func (s *Server) EndFault(id uint64) {
	s.t.Helper()
	s.ask("DELETE", fmt.Sprint("/faults/", id), nil, nil)
}

// EndFaults ends all faults.
func (s *Server) EndFaults() { s.t.Helper(); s.ask("DELETE", "/faults", nil, nil) }

// ListWatches returns the open watches.
func (s *Server) ListWatches() (watches []Watch) {
	s.t.Helper()
	s.ask("GET", "/watches", nil, &watches)
	return watches
}

// ActOnWatches controls watches, with an action such as "hold" or {"release": 1}, and returns their number.
func (s *Server) ActOnWatches(on Filter, action any) int {
	s.t.Helper()
	var answer struct{ Watches int }
	s.ask("POST", "/watches", map[string]any{"on": on, "do": action}, &answer)
	return answer.Watches
}

// ReadJournal returns a page of the journal, after the first since entries.
func (s *Server) ReadJournal(since uint64) (journal Journal) {
	s.t.Helper()
	s.ask("GET", fmt.Sprint("/journal?since=", since), nil, &journal)
	return journal
}

// ReadEntry returns an entry of the journal with its "user" and its "answer".
func (s *Server) ReadEntry(number uint64) (entry map[string]any) {
	s.t.Helper()
	s.ask("GET", fmt.Sprint("/journal/", number), nil, &entry)
	return entry
}

// ReadTrace returns an HTML page with every step of the journal, and the fields that each write changed.
func (s *Server) ReadTrace() (page string) {
	s.t.Helper()
	s.ask("GET", "/trace", nil, &page)
	return page
}

// ClearJournal removes all entries of the journal.
func (s *Server) ClearJournal() { s.t.Helper(); s.ask("DELETE", "/journal", nil, nil) }

// SetReplica sets the view of a client: "everything", "nothingMore", {"behind": 3} or {"asFarAs": 7}.
func (s *Server) SetReplica(client string, sees any) {
	s.t.Helper()
	s.ask("POST", "/replicas", map[string]any{"client": client, "sees": sees}, nil)
}

// SkewClock sets the clock of a client ahead by these milliseconds, or behind if the number is negative.
func (s *Server) SkewClock(client string, aheadMs int64) {
	s.t.Helper()
	s.ask("POST", "/clocks", map[string]any{"client": client, "aheadMs": aheadMs}, nil)
}

// ScriptPods sets the scripts of Pods, such as {"crashLoop": true}, if the server runs with --workers all.
func (s *Server) ScriptPods(pods Pods, script map[string]any) {
	s.t.Helper()
	s.ask("POST", "/pods", map[string]any{"pods": pods, "script": script}, nil)
}

// ClearPods removes the scripts of Pods.
func (s *Server) ClearPods() { s.t.Helper(); s.ask("DELETE", "/pods", nil, nil) }

// SetKubelet stops or starts the kubelet of a Node: "stopped" or "running". The Pods of a Node with a stopped kubelet
// do not change, and after 50 s the Node is lost.
func (s *Server) SetKubelet(node, kubelet string) {
	s.t.Helper()
	s.ask("POST", "/nodes", map[string]any{"node": node, "kubelet": kubelet}, nil)
}

// Compact removes the history: a watch that resumes from an earlier version gets 410.
func (s *Server) Compact() { s.t.Helper(); s.ask("POST", "/compact", nil, nil) }

// Restart ends all connections and refuses new ones for a time; if the log is lost, clients must list again.
func (s *Server) Restart(logIsLost bool, downMs uint64) {
	s.t.Helper()
	log := "kept"
	if logIsLost {
		log = "lost"
	}
	s.ask("POST", "/restart", map[string]any{"log": log, "downMs": downMs}, nil)
}

// Help lists the requests.
func (s *Server) Help() (text string) { s.t.Helper(); s.ask("GET", "", nil, &text); return text }

// Describe returns the OpenAPI document of the control API.
func (s *Server) Describe() (document map[string]any) {
	s.t.Helper()
	s.ask("GET", "/openapi.json", nil, &document)
	return document
}

// ask sends a request to the control API and reads the response: JSON, or text if answer is a string.
func (s *Server) ask(method, path string, body, answer any) {
	s.t.Helper()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			s.t.Fatalf("drydock: %v", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, s.URL+"/_fake"+path, reader)
	if err != nil {
		s.t.Fatalf("drydock: %v", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatalf("drydock: %v", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("drydock: %s %s: %s %s %v", method, path, response.Status, data, err)
	}
	if text, ok := answer.(*string); ok {
		*text = string(data)
	} else if answer != nil {
		if err := json.Unmarshal(data, answer); err != nil {
			s.t.Fatalf("drydock: %s %s: %v", method, path, err)
		}
	}
}
