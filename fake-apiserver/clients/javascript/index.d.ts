/** Selects requests and watches; fields that are not set match everything. */
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
  apiVersion: string; kind: string; namespace: string; name: string; uid: string; resourceVersion: number;
  isTerminating: boolean; owners: { uid: string; kind: string; name: string }[];
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

/** The path of the program; throws if there is none for this platform. */
export function program(): string;

/** Starts a server on a free port, with these options of `fake-apiserver`, and waits until it is ready. */
export function start(...args: string[]): Promise<Server>;

export class Server {
  /** The path of a kubeconfig that leads to the server. */
  readonly kubeconfig: string;
  /** Where the server listens. */
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
  clearJournal(): Promise<void>;
  setReplica(client: string, sees: 'everything' | 'nothingMore' | { asFarAs: number } | { behind: number }):
    Promise<{ sees: number | null; newest: number }>;
  skewClock(client: string, aheadMs: number): Promise<void>;
  scriptPods(script: PodScript, pods?: { labels?: string; namespace?: string; name?: string }): Promise<void>;
  clearPods(): Promise<void>;
  stopNode(node: string): Promise<void>;
  startNode(node: string): Promise<void>;
  compact(): Promise<number>;
  restart(options?: { log?: 'kept' | 'lost'; downMs?: number }): Promise<void>;
  takeSnapshot(): Promise<number>;
  listSnapshots(): Promise<Snapshots>;
  restore(snapshot: number): Promise<number>;
  diff(snapshot: number): Promise<string>;
  readWorld(): Promise<string>;
  listObjects(): Promise<ObjectSummary[]>;
  readObject(uid: string): Promise<any>;
  loadObjects(objects: object | object[] | string): Promise<number>;
  applyEvent(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: object): Promise<number>;
}

/** An exploration found a failure; the message is its report, and `report` the same as data. */
export class FailureFound extends Error { report: any }

/** Explores a scenario by the command `drydock`; `args` are options of `drydock explore`. Returns the report as data. */
export function explore(scenario: string, ...args: string[]): Promise<any>;
