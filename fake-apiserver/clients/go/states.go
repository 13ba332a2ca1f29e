package drydock

import (
	"fmt"
	"net/url"
	"strconv"
)

// State selects a state of the server: the snapshot with this number, or the state after the write with the
// resourceVersion At. The zero value selects the current state.
type State struct {
	Snapshot uint64
	At       uint64
}

// ObjectSummary contains the name, the version and the owners of an object.
type ObjectSummary struct {
	APIVersion      string  `json:"apiVersion"`
	Kind            string  `json:"kind"`
	Resource        string  `json:"resource"`
	Namespace       string  `json:"namespace"`
	Name            string  `json:"name"`
	UID             string  `json:"uid"`
	ResourceVersion uint64  `json:"resourceVersion"`
	IsTerminating   bool    `json:"isTerminating"`
	Owners          []Owner `json:"owners"`
}

// Owner is an owner reference of an object.
type Owner struct {
	UID  string `json:"uid"`
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Related contains the objects related to an object.
type Related struct {
	// Owners are the direct and indirect owners, direct owners first.
	Owners []ObjectSummary `json:"owners"`
	// Owned are the direct and indirect dependents, each after its owner.
	Owned []Dependent `json:"owned"`
	// Events are the Events about the object, oldest first: "type", "reason", "message", "count", "source" and "last".
	Events []map[string]any `json:"events"`
}

// Dependent is an object with its depth below the owner, from 1.
type Dependent struct {
	ObjectSummary
	Depth int `json:"depth"`
}

// Change is a write in the history. Its type is "ADDED", "MODIFIED" or "DELETED".
type Change struct {
	Revision   uint64 `json:"revision"`
	Type       string `json:"type"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resource   string `json:"resource"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// ChangeList contains the writes in the history, which begins at the revision Oldest. Skipped is the number of older
// writes that are omitted to limit the size of the list.
type ChangeList struct {
	Oldest          uint64   `json:"oldest"`
	ResourceVersion uint64   `json:"resourceVersion"`
	Skipped         int      `json:"skipped"`
	Changes         []Change `json:"changes"`
}

// Revision is a write to an object, with a line such as "spec.replicas: 2 -> 3" for each changed field.
type Revision struct {
	Change
	Changes []string `json:"changes"`
	// By is the request, or nil if the journal does not contain it.
	By *Author `json:"by"`
}

// Author is the request that caused a write; Number is its number in the journal.
type Author struct {
	Number uint64   `json:"number"`
	AtMs   uint64   `json:"atMs"`
	Client string   `json:"client"`
	User   string   `json:"user"`
	Verb   string   `json:"verb"`
	Faults []string `json:"faults"`
}

// History contains the revisions of an object. The history of the server begins at the revision Oldest.
type History struct {
	Oldest    uint64     `json:"oldest"`
	Revisions []Revision `json:"revisions"`
}

// Found contains the objects that a search found, at most 200, and their total number.
type Found struct {
	ResourceVersion uint64        `json:"resourceVersion"`
	Total           int           `json:"total"`
	Objects         []FoundObject `json:"objects"`
}

// FoundObject is an object with its labels.
type FoundObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Resource   string            `json:"resource"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	UID        string            `json:"uid"`
	Labels     map[string]string `json:"labels"`
}

// Kinds contains the kinds that have objects, and the range of revisions in the history.
type Kinds struct {
	ResourceVersion uint64        `json:"resourceVersion"`
	Oldest          uint64        `json:"oldest"`
	Newest          uint64        `json:"newest"`
	Kinds           []KindSummary `json:"kinds"`
}

// KindSummary contains the numbers of objects of a kind.
type KindSummary struct {
	Resource     string `json:"resource"`
	APIVersion   string `json:"apiVersion"`
	Kind         string `json:"kind"`
	IsNamespaced bool   `json:"isNamespaced"`
	IsCustom     bool   `json:"isCustom"`
	// Own is the number of objects that were written after the start of the server.
	Own int `json:"own"`
	// Namespaces contains the number of objects in each namespace. Cluster-scoped objects are counted under "".
	Namespaces map[string]int `json:"namespaces"`
}

// Table contains the objects of a resource as `kubectl get` shows them.
type Table struct {
	ResourceVersion uint64        `json:"resourceVersion"`
	APIVersion      string        `json:"apiVersion"`
	Kind            string        `json:"kind"`
	IsNamespaced    bool          `json:"isNamespaced"`
	Subresources    []string      `json:"subresources"`
	Columns         []TableColumn `json:"columns"`
	Rows            []TableRow    `json:"rows"`
}

// TableColumn is a column of a Table; `kubectl get` shows columns of priority 0 without `-o wide`.
type TableColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format"`
	Description string `json:"description"`
	Priority    int    `json:"priority"`
}

// TableRow is an object, with a cell for each column.
type TableRow struct {
	UID             string `json:"uid"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	ResourceVersion uint64 `json:"resourceVersion"`
	IsTerminating   bool   `json:"isTerminating"`
	Cells           []any  `json:"cells"`
}

// TakeSnapshot saves the state and returns its number.
func (s *Server) TakeSnapshot() uint64 {
	s.t.Helper()
	var answer struct{ Snapshot uint64 }
	s.ask("POST", "/snapshot", nil, &answer)
	return answer.Snapshot
}

// ListSnapshots returns the saved "snapshots", and the newest "resourceVersion".
func (s *Server) ListSnapshots() (states map[string]any) {
	s.t.Helper()
	s.ask("GET", "/snapshot", nil, &states)
	return states
}

// Restore restores a state.
func (s *Server) Restore(snapshot uint64) {
	s.t.Helper()
	s.ask("POST", "/restore", map[string]any{"snapshot": snapshot}, nil)
}

// Diff returns the changes from a snapshot to a later one, or to the current state if to is 0.
func (s *Server) Diff(from, to uint64) (text string) {
	s.t.Helper()
	query := url.Values{}
	setNumber(query, "from", from)
	setNumber(query, "to", to)
	s.ask("GET", with("/diff", query), nil, &text)
	return text
}

// ReadWorld returns all objects as YAML.
func (s *Server) ReadWorld() (text string) {
	s.t.Helper()
	s.ask("GET", "/world", nil, &text)
	return text
}

// ListObjects returns summaries of all objects in a state.
func (s *Server) ListObjects(state State) (objects []ObjectSummary) {
	s.t.Helper()
	s.ask("GET", with("/objects", state.query()), nil, &objects)
	return objects
}

// SearchObjects searches all kinds for objects that contain all words of text in their kind, name with namespace, or
// labels, in a state. It ignores case.
func (s *Server) SearchObjects(text string, state State) (found Found) {
	s.t.Helper()
	query := state.query()
	query.Set("text", text)
	s.ask("GET", with("/search", query), nil, &found)
	return found
}

// ReadObject returns the object with a uid in a state.
func (s *Server) ReadObject(uid string, state State) (object map[string]any) {
	s.t.Helper()
	s.ask("GET", with("/objects/"+url.PathEscape(uid), state.query()), nil, &object)
	return object
}

// ReadHistory returns the revisions of the object with a uid: the fields that each write changed, and its author.
func (s *Server) ReadHistory(uid string) (history History) {
	s.t.Helper()
	s.ask("GET", "/objects/"+url.PathEscape(uid)+"/history", nil, &history)
	return history
}

// ReadRelated returns the owners of the object with a uid, the objects that it owns, and Events about it, in a state.
func (s *Server) ReadRelated(uid string, state State) (related Related) {
	s.t.Helper()
	s.ask("GET", with("/objects/"+url.PathEscape(uid)+"/related", state.query()), nil, &related)
	return related
}

// ListChanges returns the writes in the history after a resourceVersion.
func (s *Server) ListChanges(since uint64) (changes ChangeList) {
	s.t.Helper()
	query := url.Values{}
	setNumber(query, "since", since)
	s.ask("GET", with("/changes", query), nil, &changes)
	return changes
}

// ListKinds returns the kinds that have objects in a state.
func (s *Server) ListKinds(state State) (kinds Kinds) {
	s.t.Helper()
	s.ask("GET", with("/kinds", state.query()), nil, &kinds)
	return kinds
}

// ReadTable returns the objects of a resource, such as "pods" or "deployments.apps", in a state, as `kubectl get` shows
// them. The namespace "" selects all namespaces.
func (s *Server) ReadTable(resource, namespace string, state State) (table Table) {
	s.t.Helper()
	query := state.query()
	query.Set("resource", resource)
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	s.ask("GET", with("/table", query), nil, &table)
	return table
}

// LoadObjects stores objects unchanged, including status and uid.
func (s *Server) LoadObjects(objects ...any) {
	s.t.Helper()
	s.ask("POST", "/objects", map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, nil)
}

// ApplyEvent applies a watch event to the state: "ADDED", "MODIFIED" or "DELETED".
func (s *Server) ApplyEvent(kind string, object any) {
	s.t.Helper()
	s.ask("POST", "/events", map[string]any{"type": kind, "object": object}, nil)
}

// query returns the parameters that select the state.
func (s State) query() url.Values {
	query := url.Values{}
	setNumber(query, "snapshot", s.Snapshot)
	setNumber(query, "at", s.At)
	return query
}

// setNumber sets a parameter unless the number is 0, which is neither a snapshot nor a resourceVersion.
func setNumber(query url.Values, name string, number uint64) {
	if number != 0 {
		query.Set(name, strconv.FormatUint(number, 10))
	}
}

// with returns a path with these parameters.
func with(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return fmt.Sprint(path, "?", query.Encode())
}
