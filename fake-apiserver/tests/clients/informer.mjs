// @kubernetes/client-node against the command: an informer sees what is created, changed and deleted; it lists anew
// after its watch has ended.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'node';

await core.createNamespace({ body: { metadata: { name: namespace } } });
const map = (name, data) => ({ namespace, body: { metadata: { name, labels: { app: 'informer' } }, data } });
await core.createNamespacedConfigMap(map('before', { a: '1' }));

const labelSelector = 'app=informer';
const list = () => core.listNamespacedConfigMap({ namespace, labelSelector });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, labelSelector);
const seen = [];
let check = () => {};
for (const kind of ['add', 'update', 'delete']) {
    informer.on(kind, (object) => {
        seen.push(`${kind} ${object.metadata.name} ${JSON.stringify(object.data)}`);
        check();
    });
}
informer.on('error', (error) => {
    // The client says so of every watch that is stopped.
    if (error.type !== 'aborted') throw error;
});
const until = (text) =>
    new Promise((resolve, reject) => {
        const late = setTimeout(() => reject(new Error(`not seen: ${text}, but ${seen}`)), 30_000);
        check = () => {
            if (seen.includes(text)) {
                clearTimeout(late);
                resolve();
            }
        };
        check();
    });

await informer.start();
await until('add before {"a":"1"}');
await core.createNamespacedConfigMap(map('after', { b: '1' }));
await until('add after {"b":"1"}');
await core.patchNamespacedConfigMap(
    { name: 'after', namespace, body: { data: { b: '2' } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
);
await until('update after {"b":"2"}');
assert.deepEqual(
    informer.list(namespace).map((it) => it.metadata.name).sort(),
    ['after', 'before'],
);
await core.deleteNamespacedConfigMap({ name: 'before', namespace });
await until('delete before {"a":"1"}');
assert.deepEqual(seen, [
    'add before {"a":"1"}',
    'add after {"b":"1"}',
    'update after {"b":"2"}',
    'delete before {"a":"1"}',
]);
await informer.stop();
await assert.rejects(core.readNamespacedConfigMap({ name: 'before', namespace }), (error) => error.code === 404);
console.log('client-node: informer sees create, patch, delete');
