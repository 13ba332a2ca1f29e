import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import * as k8s from '@kubernetes/client-node';
import { FailureFound, Refused, Server, explore, start } from './index.mjs';

let server;
let core;

beforeEach(async () => {
  server = await start();
  const config = new k8s.KubeConfig();
  config.loadFromFile(server.kubeconfig);
  core = config.makeApiClient(k8s.CoreV1Api);
});

afterEach(() => server.close());

const map = (name) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' } });

test('a fault strikes as often as it is told', async () => {
  await server.injectFault({ effect: 'conflict', on: { verbs: ['create'] }, times: 1 });
  const create = () => core.createNamespacedConfigMap({ namespace: 'default', body: map('a') });
  await assert.rejects(create, { code: 409 });
  await create();
  assert.equal((await server.listFaults())[0].hits, 1);
  assert.ok((await server.readJournal()).entries.length >= 2);
});

test('a state is put back', async () => {
  const before = await server.takeSnapshot();
  assert.equal(await server.loadObjects([map('a'), map('b')]), 2);
  assert.match(await server.diff(before), /b/);
  await server.restore(before);
  assert.deepEqual((await core.listNamespacedConfigMap({ namespace: 'default' })).items, []);
});

test('the history contains each write and its author', async () => {
  const of = (color) => ({ namespace: 'default', name: 'a', body: { ...map('a'), data: { color } } });
  const created = await core.createNamespacedConfigMap(of('red'));
  await core.replaceNamespacedConfigMap(of('blue'));
  const { revisions } = await server.readHistory(created.metadata.uid);
  assert.deepEqual(revisions.map((it) => [it.type, it.by.verb]), [['ADDED', 'create'], ['MODIFIED', 'update']]);
  assert.ok(revisions[1].changes.includes('data.color: "red" -> "blue"'));
  const { changes } = await server.listChanges(revisions[0].revision);
  assert.equal(changes.find((it) => it.name === 'a').revision, revisions[1].revision);
  assert.ok((await server.listChanges()).changes.length > changes.length);
  assert.match(await server.readTrace(), /^<!doctype html>[^]*configmaps/);
});

test('an earlier state is read', async () => {
  const uid = 'uid/of a';
  await server.loadObjects({ ...map('a'), metadata: { name: 'a', namespace: 'default', uid } });
  const before = await server.takeSnapshot();
  const { resourceVersion } = await server.listSnapshots();
  const ownerReferences = [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'a', uid }];
  await server.loadObjects({ ...map('b'), metadata: { name: 'b', namespace: 'default', ownerReferences } });
  const after = await server.takeSnapshot();
  const seen = async (state) => {
    const { kinds } = await server.listKinds(state);
    const { rows } = await server.readTable('configmaps', { namespace: 'default', ...state });
    return {
      named: (await server.listObjects(state)).some((it) => it.name === 'b'),
      shown: rows.some((it) => it.name === 'b'),
      owned: (await server.readRelated(uid, state)).owned.map((it) => it.name),
      count: kinds.find((it) => it.kind === 'ConfigMap').namespaces.default,
      uid: (await server.readObject(uid, state)).metadata.uid,
    };
  };
  const alone = await seen({ snapshot: before });
  assert.deepEqual(alone, { named: false, shown: false, owned: [], count: alone.count, uid });
  const owning = await seen();
  assert.deepEqual(owning, { named: true, shown: true, owned: ['b'], count: alone.count + 1, uid });
  assert.deepEqual(await seen({ at: resourceVersion }), alone);
  assert.deepEqual(await seen({ snapshot: after }), owning);
  assert.deepEqual((await server.searchObjects('configmap default/b')).objects.map((it) => it.name), ['b']);
  assert.equal((await server.searchObjects('configmap default/b', { snapshot: before })).total, 0);
  await server.loadObjects(map('c'));
  assert.match(await server.diff(before), /default\/c/);
  assert.doesNotMatch(await server.diff(before, after), /default\/c/);
  await assert.rejects(server.listKinds({ snapshot: before, at: 1 }), /cannot be combined/);
});

test('a stopped kubelet starts no Pods', async () => {
  await assert.rejects(server.setKubelet('stopped', 'stopped'), /--workers/);
  const other = await start('--workers', 'all');
  try {
    const nodes = ['stopped', 'running'];
    await other.loadObjects(nodes.map((name) => ({ apiVersion: 'v1', kind: 'Node', metadata: { name } })));
    await other.setKubelet('stopped', 'stopped');
    const pods = nodes.map((name) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: 'default' },
      spec: { nodeName: name, containers: [{ name: 'main', image: 'i' }] },
    }));
    await other.loadObjects(pods);
    const status = async (name) => {
      const { columns, rows } = await other.readTable('pods');
      return rows.find((it) => it.name === name).cells[columns.findIndex((it) => it.name === 'Status')];
    };
    while ((await status('running')) !== 'Running') await setTimeout(50);
    assert.equal(await status('stopped'), 'Pending');
    await other.setKubelet('stopped', 'running');
    while ((await status('stopped')) !== 'Running') await setTimeout(50);
  } finally {
    await other.close();
  }
});

test('what cannot be is said', async () => {
  await assert.rejects(server.injectFault({ effect: { status: { code: 200 } } }), Refused);
  await assert.rejects(start('--no-such-flag'), /--no-such-flag/);
});

test('every operation has a method, and every method is an operation', async () => {
  const { paths } = await server.describe();
  const operations = Object.values(paths).flatMap((path) => Object.values(path));
  const names = operations.map((it) => it.operationId).filter(Boolean);
  const methods = Object.getOwnPropertyNames(Server.prototype);
  assert.deepEqual(methods.filter((it) => !['constructor', 'close'].includes(it)).sort(), names.sort());
});

const scenario = `
controllers:
  - {name: operator, command: ["\${env.DRYDOCK_TEST}", -e, "throw new Error('nothing works')"], startup: 10s}
cluster: {workers: []}
steps: [{pause: 1s}]
`;

const isSkipped = !process.env.DRYDOCK && process.env.DRYDOCK_CLIENTS !== '1';

test('an exploration reports a controller that ends', { skip: isSkipped }, async () => {
  assert.ok(process.env.DRYDOCK, 'DRYDOCK does not name the command drydock');
  const folder = await mkdtemp(join(tmpdir(), 'drydock-test-'));
  const path = join(folder, 'scenario.yaml');
  await writeFile(path, scenario);
  await assert.rejects(explore(path), (error) => {
    assert.ok(error instanceof FailureFound, error.message);
    assert.match(error.message, /nothing works/);
    assert.equal(error.report.failures.length, 1);
    return true;
  });
  await assert.rejects(explore(join(folder, 'missing.yaml')), /missing.yaml/);
  await rm(folder, { recursive: true });
});
