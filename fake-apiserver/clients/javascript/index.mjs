// A fake Kubernetes API server in a separate process, controlled by a test. Each method that sends a request calls the
// operation of the control API with the same name; GET /_fake/openapi.json describes the operations. Times are in
// milliseconds.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import http from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

const READY = 'listening on ';

/** The server refused a request. The message contains the reason. */
export class Refused extends Error {
  constructor(code, reason) {
    super(reason);
    this.code = code;
  }
}

/**
 * Returns the path of the program: FAKE_APISERVER, the program of the package for this platform, or the first one in
 * PATH. Throws if it is not found.
 */
export function program() {
  const name = process.platform === 'win32' ? 'fake-apiserver.exe' : 'fake-apiserver';
  return process.env.FAKE_APISERVER || find(name, 'run `cargo install fake-apiserver`, or set FAKE_APISERVER');
}

/**
 * Returns the path of the command `drydock`: DRYDOCK, the command of the package for this platform (Linux or macOS), or
 * the first one in PATH. Throws if it is not found.
 */
export function explorer() {
  const remedy = 'run `cargo install drydock-testkit --features processes`, or set DRYDOCK';
  return process.env.DRYDOCK || find('drydock', remedy);
}

function find(name, remedy) {
  const platform = `${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`@drydock/fake-apiserver-${platform}/bin/${name}`);
  } catch {
    // There is no package for this platform, or optional dependencies were not installed.
  }
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    if (folder && existsSync(join(folder, name))) return join(folder, name);
  }
  throw new Error(
    `no program ${name} for ${platform}: the npm package @drydock/fake-apiserver-${platform} is not installed, ` +
      `and the program is not in PATH; ${remedy}`,
  );
}

/** An exploration found a failure. The message is its report, and `report` contains the report as data. */
export class FailureFound extends Error {
  constructor(text, report) {
    super(text);
    this.report = report;
  }
}

/**
 * Explores a scenario, a YAML file, with the command `drydock` (see `explorer()`), which runs controllers as processes
 * and injects faults. Returns the report as data. `args` are options of `drydock explore`. In the scenario,
 * `${env.DRYDOCK_TEST}` is the path of this Node.js program. Rejects with `FailureFound` if a failure is found.
 */
export async function explore(scenario, ...args) {
  const folder = await mkdtemp(join(tmpdir(), 'drydock-'));
  try {
    const path = join(folder, 'report.json');
    const child = spawn(explorer(), ['explore', scenario, '--json', path, ...args], {
      env: { ...process.env, DRYDOCK_TEST: process.execPath },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].on('data', (data) => (output[name] += data));
    const code = await new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    if (code !== 0 && code !== 1) {
      throw new Error(`drydock explore exited with ${code}: ${output.stdout}${output.stderr}`);
    }
    const report = JSON.parse(await readFile(path, 'utf8'));
    if (code === 1) throw new FailureFound(output.stdout, report);
    return report;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Starts a server on a free port, with these options of `fake-apiserver`, and waits until it is ready. */
export async function start(...args) {
  const path = program();
  const folder = await mkdtemp(join(tmpdir(), 'drydock-'));
  const kubeconfig = join(folder, 'kubeconfig');
  const token = randomBytes(16).toString('hex');
  // client-node refuses plain HTTP.
  const own = ['--exit-with-parent', '--control', '--control-token', token, '--kubeconfig', kubeconfig];
  if (!args.includes('--tls')) own.push('--tls');
  const child = spawn(path, [...own, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  let line = '';
  child.stderr.on('data', (data) => (log += data));
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
    child.once('error', (error) => resolve((log += error.message)));
  });
  try {
    await new Promise((resolve, reject) => {
      child.stdout.on('data', (data) => {
        line += data;
        if (line.includes('\n')) resolve();
      });
      ended.then(() => reject(new Error(`fake-apiserver did not start: ${log}`)));
    });
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  return new Server(child, ended, folder, kubeconfig, line.trim().slice(READY.length), token);
}

/** Returns a path with the parameters that are defined. */
function withQuery(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** A running server. */
export class Server {
  #child;
  #ended;
  #folder;
  #token;

  constructor(child, ended, folder, kubeconfig, url, token) {
    this.#child = child;
    this.#ended = ended;
    this.#folder = folder;
    this.#token = token;
    /** The path of a kubeconfig for the server. */
    this.kubeconfig = kubeconfig;
    /** The URL at which the server listens. */
    this.url = url;
  }

  /** Ends the server. */
  async close() {
    this.#child.kill('SIGTERM');
    await this.#ended;
    await rm(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.close();
  }

  #ask(method, path, body, type = 'application/json') {
    const data = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const headers = { Authorization: `Bearer ${this.#token}` };
    if (data !== undefined) {
      headers['Content-Type'] = type;
      headers['Content-Length'] = Buffer.byteLength(data);
    }
    const url = new URL(`${this.url}/_fake${path}`);
    // The certificate is created for this run, and the port is on this machine.
    const options = { method, headers, rejectUnauthorized: false, agent: false };
    return new Promise((resolve, reject) => {
      const request = (url.protocol === 'https:' ? https : http).request(url, options, (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (more) => (text += more));
        answer.on('error', reject);
        answer.on('end', () => {
          const isJson = answer.headers['content-type'] === 'application/json';
          const value = isJson ? JSON.parse(text) : text;
          if (answer.statusCode === 200) resolve(value);
          else reject(new Refused(answer.statusCode, value?.error ?? text));
        });
      });
      request.on('error', reject);
      request.end(data);
    });
  }

  help() {
    return this.#ask('GET', '');
  }

  describe() {
    return this.#ask('GET', '/openapi.json');
  }

  async injectFault(rule) {
    return (await this.#ask('POST', '/faults', rule)).id;
  }

  listFaults() {
    return this.#ask('GET', '/faults');
  }

  async endFault(id) {
    await this.#ask('DELETE', `/faults/${id}`);
  }

  async endFaults() {
    return (await this.#ask('DELETE', '/faults')).ended;
  }

  listWatches() {
    return this.#ask('GET', '/watches');
  }

  async actOnWatches(on, action) {
    return (await this.#ask('POST', '/watches', { on, do: action })).watches;
  }

  readJournal(since = 0) {
    return this.#ask('GET', `/journal?since=${since}`);
  }

  readEntry(number) {
    return this.#ask('GET', `/journal/${number}`);
  }

  readTrace() {
    return this.#ask('GET', '/trace');
  }

  async clearJournal() {
    await this.#ask('DELETE', '/journal');
  }

  setReplica(client, sees) {
    return this.#ask('POST', '/replicas', { client, sees });
  }

  async skewClock(client, aheadMs) {
    await this.#ask('POST', '/clocks', { client, aheadMs });
  }

  async scriptPods(script, pods = {}) {
    await this.#ask('POST', '/pods', { pods, script });
  }

  async clearPods() {
    await this.#ask('DELETE', '/pods');
  }

  async setKubelet(node, kubelet) {
    await this.#ask('POST', '/nodes', { node, kubelet });
  }

  async compact() {
    return (await this.#ask('POST', '/compact')).resourceVersion;
  }

  async restart({ log = 'kept', downMs = 0 } = {}) {
    await this.#ask('POST', '/restart', { log, downMs });
  }

  async takeSnapshot() {
    return (await this.#ask('POST', '/snapshot')).snapshot;
  }

  listSnapshots() {
    return this.#ask('GET', '/snapshot');
  }

  async restore(snapshot) {
    return (await this.#ask('POST', '/restore', { snapshot })).resourceVersion;
  }

  diff(snapshot, to) {
    return this.#ask('GET', withQuery('/diff', { from: snapshot, to }));
  }

  readWorld() {
    return this.#ask('GET', '/world');
  }

  listObjects(state) {
    return this.#ask('GET', withQuery('/objects', state));
  }

  searchObjects(text, state) {
    return this.#ask('GET', withQuery('/search', { text, ...state }));
  }

  readObject(uid, state) {
    return this.#ask('GET', withQuery(`/objects/${encodeURIComponent(uid)}`, state));
  }

  readHistory(uid) {
    return this.#ask('GET', `/objects/${encodeURIComponent(uid)}/history`);
  }

  readRelated(uid, state) {
    return this.#ask('GET', withQuery(`/objects/${encodeURIComponent(uid)}/related`, state));
  }

  listChanges(since) {
    return this.#ask('GET', withQuery('/changes', { since }));
  }

  listKinds(state) {
    return this.#ask('GET', withQuery('/kinds', state));
  }

  readTable(resource, { namespace, snapshot, at } = {}) {
    return this.#ask('GET', withQuery('/table', { resource, namespace, snapshot, at }));
  }

  async loadObjects(objects) {
    if (typeof objects === 'string') return (await this.#ask('POST', '/objects', objects, 'application/yaml')).loaded;
    const list = Array.isArray(objects) ? { apiVersion: 'v1', kind: 'List', items: objects } : objects;
    return (await this.#ask('POST', '/objects', list)).loaded;
  }

  async applyEvent(type, object) {
    return (await this.#ask('POST', '/events', { type, object })).resourceVersion;
  }
}
