// --- objects as YAML

/** Strings that need quotes in YAML because of their characters. */
const NOT_PLAIN = /^$|^[\s\-?:,[\]{}#&*!|>'"%@`]|[:#]\s|:$|\s#|\s$|[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]/;
const OTHER_TYPE = /^(?:~|null|true|false|yes|no|on|off|y|n|[-+]?\.?(?:inf|nan)|[-+.]?\d[\d_.:eExXoOa-fA-F+-]*|\d{4}-\d\d.*)$/i;

function scalarOf(value) {
  if (typeof value !== 'string') return JSON.stringify(value);
  if (NOT_PLAIN.test(value) || OTHER_TYPE.test(value)) return JSON.stringify(value);
  return value;
}

/** Formats a value as YAML, in the order of its keys. */
function yamlOf(value, indent = '') {
  if (Array.isArray(value)) {
    if (value.length === 0) return `${indent}[]\n`;
    return value.map((item) => {
      const isNested = item !== null && typeof item === 'object' && Object.keys(item).length > 0;
      if (!isNested) return `${indent}- ${inlineOf(item)}\n`;
      return `${indent}- ${yamlOf(item, `${indent}  `).slice(indent.length + 2)}`;
    }).join('');
  }
  return Object.entries(value).map(([key, item]) => {
    const name = `${indent}${scalarOf(key)}:`;
    if (typeof item === 'string' && item.includes('\n') && !/[\x00-\x09\x0b-\x1f\x7f-\x9f]|\s\n|^\s/.test(item)) {
      const keep = item.endsWith('\n\n') ? '+' : item.endsWith('\n') ? '' : '-';
      const lines = item.replace(/\n$/, '').split('\n').map((line) => (line ? `${indent}  ${line}` : ''));
      return `${name} |${keep}\n${lines.join('\n')}\n`;
    }
    const isNested = item !== null && typeof item === 'object' && Object.keys(item).length > 0;
    if (!isNested) return `${name} ${inlineOf(item)}\n`;
    return `${name}\n${yamlOf(item, Array.isArray(item) ? indent : `${indent}  `)}`;
  }).join('');
}

function inlineOf(value) {
  if (value !== null && typeof value === 'object') return Array.isArray(value) ? '[]' : '{}';
  return scalarOf(value);
}

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/** Returns an object without managedFields and without the annotation of kubectl apply. */
function withoutNoise(object) {
  const { managedFields: _, ...metadata } = object.metadata;
  if (metadata.annotations && LAST_APPLIED in metadata.annotations) {
    const { [LAST_APPLIED]: __, ...annotations } = metadata.annotations;
    metadata.annotations = annotations;
    if (Object.keys(annotations).length === 0) delete metadata.annotations;
  }
  return { ...object, metadata };
}

/** Returns the kind, version and names of each document in a text. Only these fields of YAML are parsed. */
function documentsOf(text) {
  const documents = text.split(/^---.*$/m).filter((it) => it.replace(/^\s*#.*$/gm, '').trim());
  return documents.map((document) => {
    try {
      const { apiVersion, kind, metadata } = JSON.parse(document);
      return { text: document, apiVersion, kind, name: metadata?.name, namespace: metadata?.namespace };
    } catch {
      // The document is not JSON, so it is parsed as YAML.
    }
    const plain = (value) => value?.trim().replace(/^(['"])(.*)\1$/, '$2');
    const top = (key) => plain(new RegExp(`^${key}:[ \\t]*([^#\\n]+)`, 'm').exec(document)?.[1]);
    const block = /^metadata:[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)*)/m.exec(document)?.[1] ?? '';
    const indent = /^[ \t]+/.exec(block)?.[0] ?? '  ';
    const within = (key) => plain(new RegExp(`^${indent}${key}:[ \\t]*([^#\\n]+)`, 'm').exec(block)?.[1]);
    return { text: document, apiVersion: top('apiVersion'), kind: top('kind'), name: within('name'),
      namespace: within('namespace') };
  });
}
