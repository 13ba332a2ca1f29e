/**
 * Selects requests and watches; fields that are not set match everything. Clients are named by their User-Agent or its
 * part before the first slash: `manager` for `manager/v0.1 (linux)`.
 */
export interface Filter {
  verbs?: ('get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'deletecollection')[];
  resource?: string;
  namespace?: string;
  name?: string;
  client?: string;
  exceptClients?: string[];
}

export interface Failure {
  code: number;
  reason?: string;
  message?: string;
  retryAfterSeconds?: number;
  applied?: boolean;
}

export type Effect =
  | 'conflict' | 'notFound' | 'refuse'
  | { status: Failure } | { delayMs: number } | { delayAnswerMs: number }
  | { reset: 'before' | 'after' } | { hang: 'before' | 'after' } | { truncate: number };

export interface FaultRule { effect: Effect; on?: Filter; skip?: number; times?: number; probability?: number }

export interface Fault { id: number; fault: string; hits: number }

export interface Watch {
  id: number; client: string; group: string; resource: string; namespace: string; delivered: number;
  lastResourceVersion: number; behind: number; isSilent: boolean; isHeld: boolean;
  held: { type: string; namespace: string; name: string; resourceVersion: number }[];
}

export type WatchAction =
  | 'hold' | 'resume' | 'silence' | 'end' | 'expire' | 'cut' | 'bookmark'
  | 'withholdBookmarks' | 'withholdInitialEnd' | 'sendInitialEnd'
  | { release: number } | { fail: Failure } | { cutInside: number } | { duplicate: number }
  | { send: { type: string; object: object } };

export interface Journal { first: number; next: number; total: number; entries: ({ request: any } | { event: any })[] }

export interface Snapshots {
  atMs: number; resourceVersion: number;
  snapshots: { snapshot: number; atMs: number; resourceVersion: number; objects: number }[];
}

export interface ObjectSummary {
  apiVersion: string; kind: string; resource: string; namespace: string; name: string; uid: string;
  resourceVersion: number; isTerminating: boolean; owners: { uid: string; kind: string; name: string }[];
}

/** Selects a saved state, or the state after the write with the resourceVersion `at`. Default: the current state. */
export type State = { snapshot?: number; at?: undefined } | { snapshot?: undefined; at?: number };

export interface Related {
  /** Direct and indirect owners, direct owners first. */
  owners: ObjectSummary[];
  /** Direct and indirect dependents, each after its owner; `depth` starts at 1. */
  owned: (ObjectSummary & { depth: number })[];
  /** Events about the object, oldest first. */
  events: { type: any; reason: any; message: any; count: any; source: any; last: any }[];
}

export interface Change {
  revision: number; type: 'ADDED' | 'MODIFIED' | 'DELETED'; apiVersion: string | null; kind: string | null;
  resource: string | null; namespace: string | null; name: string | null; uid: string | null;
}

/** The history begins at the revision `oldest`; `skipped` older writes are omitted, to limit the size of the list. */
export interface ChangeList { oldest: number; resourceVersion: number; skipped: number; changes: Change[] }

/** A write to an object, with a line such as `spec.replicas: 2 -> 3` for each changed field. */
export interface Revision extends Change {
  changes: string[];
  /** The request; null if the journal does not contain it. */
  by: { number: number; atMs: number; client: string; user: string; verb: string; faults: string[] } | null;
}

export interface History { oldest: number; revisions: Revision[] }

export interface Found {
  resourceVersion: number;
  /** The total number of objects found. */
  total: number;
  /** The first 200 of these objects. */
  objects: {
    apiVersion: string; kind: string; resource: string; namespace: string; name: string; uid: string;
    labels: Record<string, string>;
  }[];
}

export interface Kinds {
  resourceVersion: number; oldest: number; newest: number;
  kinds: {
    resource: string; apiVersion: string; kind: string; isNamespaced: boolean; isCustom: boolean;
    /** The number of objects that were written after the start of the server. */
    own: number;
    /** The number of objects in each namespace. Cluster-scoped objects are counted under the empty name. */
    namespaces: Record<string, number>;
  }[];
}

export interface Table {
  resourceVersion: number; apiVersion: string; kind: string; isNamespaced: boolean; subresources: string[];
  columns: { name: string; type: string; format: string; description: string; priority: number }[];
  rows: {
    uid: string; namespace: string; name: string; resourceVersion: number; isTerminating: boolean; cells: any[];
  }[];
}

export interface PodScript {
  startsAfterMs?: number; readyAfterMs?: number; neverReady?: boolean; runsForMs?: number; runsForever?: boolean;
  exitCode?: number; crashLoop?: boolean; imagePullError?: boolean; initRunsForMs?: number; initExitCode?: number;
  stopsAfterMs?: number; logs?: string;
  containerExitCodes?: Record<string, number>; usage?: Record<string, string>;
  failingProbes?: { probe: 'startup' | 'readiness' | 'liveness'; fromMs?: number; untilMs?: number }[];
  exec?: { command?: string[]; stdout?: string; stderr?: string; exitCode?: number; echoesStdin?: boolean }[];
  ports?: { port: number; http?: { status?: number; contentType?: string; body?: string }; reply?: string }[];
}

export class Refused extends Error { readonly code: number }

/** Returns the path of the program. Throws if it is not found. */
export function program(): string;

/** Starts a server on a free port, with these options of `fake-apiserver`, and waits until it is ready. */
export function start(...args: string[]): Promise<Server>;

export class Server {
  /** The path of a kubeconfig for the server. */
  readonly kubeconfig: string;
  /** The URL at which the server listens. */
  readonly url: string;
  /** Ends the server. */
  close(): Promise<void>;
  help(): Promise<string>;
  describe(): Promise<any>;
  injectFault(rule: FaultRule): Promise<number>;
  listFaults(): Promise<Fault[]>;
  endFault(id: number): Promise<void>;
  endFaults(): Promise<number>;
  listWatches(): Promise<Watch[]>;
  actOnWatches(on: Filter, action: WatchAction): Promise<number>;
  readJournal(since?: number): Promise<Journal>;
  readEntry(number: number): Promise<{ entry: { request: any } | { event: any }; user: string; answer: string }>;
  /** Returns an HTML page with every step of the journal, and the fields that each write changed. */
  readTrace(): Promise<string>;
  clearJournal(): Promise<void>;
  setReplica(client: string, sees: 'everything' | 'nothingMore' | { asFarAs: number } | { behind: number }):
    Promise<{ sees: number | null; newest: number }>;
  skewClock(client: string, aheadMs: number): Promise<void>;
  scriptPods(script: PodScript, pods?: { labels?: string; namespace?: string; name?: string }): Promise<void>;
  clearPods(): Promise<void>;
  /** Stops or starts the kubelet of a Node. Its Pods do not change while it is stopped; after 50 s the Node is lost. */
  setKubelet(node: string, kubelet: 'running' | 'stopped'): Promise<void>;
  compact(): Promise<number>;
  restart(options?: { log?: 'kept' | 'lost'; downMs?: number }): Promise<void>;
  takeSnapshot(): Promise<number>;
  listSnapshots(): Promise<Snapshots>;
  restore(snapshot: number): Promise<number>;
  /** Returns the changes from a saved state to a later one, by default the current state, as text. */
  diff(snapshot: number, to?: number): Promise<string>;
  readWorld(): Promise<string>;
  listObjects(state?: State): Promise<ObjectSummary[]>;
  readObject(uid: string, state?: State): Promise<any>;
  /** Returns the revisions of an object: the fields that each write changed, and its author. */
  readHistory(uid: string): Promise<History>;
  /** Searches all kinds for objects that contain all words of `text` in their kind, name, namespace or labels. */
  searchObjects(text: string, state?: State): Promise<Found>;
  /** Returns the owners of an object, the objects that it owns, and Events about it. */
  readRelated(uid: string, state?: State): Promise<Related>;
  /** Returns the writes in the history after the resourceVersion `since`. */
  listChanges(since?: number): Promise<ChangeList>;
  /** Returns the kinds that have objects. */
  listKinds(state?: State): Promise<Kinds>;
  /** Returns the objects of a resource, such as `pods` or `deployments.apps`, as `kubectl get` shows them. */
  readTable(resource: string, options?: State & { namespace?: string }): Promise<Table>;
  loadObjects(objects: object | object[] | string): Promise<number>;
  applyEvent(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: object): Promise<number>;
}

/** An exploration found a failure. The message is its report, and `report` contains the report as data. */
export class FailureFound extends Error { report: any }

/** Returns the path of the command `drydock`. Throws if it is not found. */
export function explorer(): string;

/** Explores a scenario with `drydock explore`, with `args` as options. Returns the report as data. */
export function explore(scenario: string, ...args: string[]): Promise<any>;
