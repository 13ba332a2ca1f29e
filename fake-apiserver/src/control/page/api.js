// --- the control API

const tokenOf = () => sessionStorage.getItem(TOKEN);

function headers(more) {
  const token = tokenOf();
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

/** Opens the dialog for a token, unless the refused token has been replaced in the meantime. */
function askForToken(why, refused) {
  const dialog = $('token-dialog');
  if (dialog.open || refused !== tokenOf()) return;
  setText($('token-why'), refused ? why : '');
  setText($('link'), 'not authorized');
  dialog.showModal();
}

async function ask(method, path, body) {
  const more = { Accept: 'application/json' };
  if (body !== undefined) more['Content-Type'] = 'application/json';
  const data = body === undefined ? undefined : JSON.stringify(body);
  const token = tokenOf();
  const answer = await fetch(`/_fake${path}`, { method, headers: headers(more), body: data });
  if (answer.ok) return answer.json();
  const why = await answer.json().then((it) => it.error, () => answer.statusText);
  if (answer.status === 401 || answer.status === 403) askForToken(why, token);
  throw new Error(why);
}

/** Sends a request of the user, and shows its result and the new state. */
async function order(method, path, body, said) {
  try {
    const answer = await ask(method, path, body);
    if (said) say(said(answer));
    poll();
    return answer;
  } catch (error) {
    say(error.message, true);
    return undefined;
  }
}

// --- the Kubernetes API, for changes of objects

/** Sends a request like any other client: it is checked, and recorded in the journal. */
async function callApi(method, path, body, type) {
  const more = { Accept: 'application/json' };
  if (type) more['Content-Type'] = type;
  const token = tokenOf();
  const answer = await fetch(path, { method, headers: headers(more), body });
  const text = await answer.text();
  if (answer.ok) return text;
  let why = text.trim();
  try {
    why = JSON.parse(text).message ?? why;
  } catch {
    // The response is not a Status, so its text is the reason.
  }
  if (answer.status === 401) askForToken(why, token);
  throw new Error(why || answer.statusText);
}

const prefixOf = (apiVersion) => (apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`);

/** Returns the path of an object; `plural` is its resource without the group. */
function pathOf({ apiVersion, namespace, name }, plural) {
  const space = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  return `${prefixOf(apiVersion)}${space}/${plural}/${encodeURIComponent(name)}`;
}

/** Applies all documents of a text in order, and returns the objects. */
async function applyAll(text) {
  const applied = [];
  const documents = documentsOf(text);
  if (documents.length === 0) throw new Error('the text contains no document');
  for (const { text: document, apiVersion, kind, name, namespace } of documents) {
    if (!apiVersion || !kind || !name) throw new Error('a document lacks apiVersion, kind or metadata.name');
    const served = JSON.parse(await callApi('GET', prefixOf(apiVersion)));
    const resource = served.resources.find((it) => it.kind === kind && !it.name.includes('/'));
    if (!resource) throw new Error(`${apiVersion} has no kind ${kind}`);
    const space = resource.namespaced ? namespace || $('namespace').value || 'default' : '';
    const path = pathOf({ apiVersion, namespace: space, name }, resource.name);
    const type = 'application/apply-patch+yaml';
    applied.push(JSON.parse(await callApi('PATCH', `${path}?fieldManager=page&force=true`, document, type)));
  }
  return applied;
}
