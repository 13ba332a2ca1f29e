import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

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

test('what cannot be is said', async () => {
  await assert.rejects(server.injectFault({ effect: { status: { code: 200 } } }), Refused);
  await assert.rejects(start('--no-such-flag'), /--no-such-flag/);
});

test('every operation has a method', async () => {
  const { paths } = await server.describe();
  const operations = Object.values(paths).flatMap((path) => Object.values(path));
  for (const { operationId } of operations.filter((it) => it.operationId)) {
    assert.equal(typeof Server.prototype[operationId], 'function', operationId);
  }
});

const scenario = `
controllers:
  - {name: operator, command: ["\${env.DRYDOCK_TEST}", -e, "throw new Error('nothing works')"], startup: 10s}
cluster: {workers: []}
steps: [{pause: 1s}]
`;

test('an exploration reports a controller that ends', { skip: !process.env.DRYDOCK }, async () => {
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
