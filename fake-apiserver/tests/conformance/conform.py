#!/usr/bin/env python3
"""Replay recorded API-server transcripts against a server and compare every answer, or record new ones.

A transcript (one line of transcripts/AREA.jsonl) holds the steps of one scenario and, per step, the answer
that a real kube-apiserver gave. `run` performs the same steps against --server, normalises both sides alike
(resourceVersions by rank, uids by order of appearance, times, generated names, continue tokens)
and prints the first differences of each scenario that does not match.

  conform.py run    --server http://127.0.0.1:8001 transcripts/            # compare
  conform.py run    --server ... --only watch -v --diffs 20 transcripts/   # one area, more detail
  conform.py record --server ... --out transcripts/ scenarios/AREA.yaml    # needs PyYAML

`record` puts each scenario of AREA.yaml into transcripts/AREA.jsonl, in the place of one of the same name.

Step forms (YAML in a scenario, the same keys in a transcript):
  {do: GET|POST|.., path, body?, type?, headers?, capture?: {var: dotted.path}, mask?: [dotted.path],
   until?: {path: dotted.path, equals|exists|absent: v}, timeout?: s, record?: false}
  {watch: ID, path, headers?}   opens a stream        {read: ID, count: N, timeout?: s, quiet?: s}
  {close: ID}                   {sleep: s}            {sh: "kubectl ...", stdin?: text, mask_lines?: [regex]}
Strings take ${var}; `${var:int}` as a whole string becomes a number. Always set: ns (a namespace made
for the scenario unless `namespace: false`), u (a unique lower-case suffix).
Standard library only, apart from `record`.
"""
import argparse, concurrent.futures, http.client, itertools, json, os, queue, random, re, socket, ssl, subprocess, sys, tempfile
import threading, time, urllib.parse

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEADERS = ("content-type", "warning", "retry-after", "allow")


class Server:
    def __init__(self, url, token=None):
        parts = urllib.parse.urlsplit(url)
        self.url, self.host, self.port, self.tls = url, parts.hostname, parts.port, parts.scheme == "https"
        self.token = token
        self.kubeconfig = None

    def connect(self, timeout):
        if self.tls:
            ctx = ssl.create_default_context()
            ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=ctx)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def headers(self, extra):
        base = {"Accept": "application/json", "User-Agent": "conform/1"}
        if self.token:
            base["Authorization"] = "Bearer " + self.token
        base.update(extra or {})
        return {k: v for k, v in base.items() if v is not None}

    def request(self, method, path, body=None, ctype=None, headers=None, timeout=45):
        conn = self.connect(timeout)
        try:
            head = self.headers(headers)
            data = None
            if body is not None:
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                head["Content-Type"] = ctype or "application/json"
            conn.request(method, path, body=data, headers=head)
            res = conn.getresponse()
            raw = res.read()
            return res.status, kept_headers(res), raw
        finally:
            conn.close()

    def write_kubeconfig(self):
        if not self.kubeconfig:
            fd, self.kubeconfig = tempfile.mkstemp(suffix=".kubeconfig")
            user = {"token": self.token} if self.token else {}
            os.write(fd, json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": self.url, **({"insecure-skip-tls-verify": True} if self.tls else {})}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}).encode())
            os.close(fd)
        return self.kubeconfig


class Watch:
    """A watch stream read by its own thread into a queue of lines."""

    def __init__(self, server, path, headers):
        self.lines, self.status, self.head = queue.Queue(), None, {}
        self.conn = server.connect(120)
        self.conn.request("GET", path, headers=server.headers(headers))
        self.sock = self.conn.sock  # the response takes it over when the server closes
        self.res = self.conn.getresponse()
        self.status = self.res.status
        self.head = kept_headers(self.res)
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self):
        try:
            while True:
                line = self.res.readline()
                if not line:
                    break
                self.lines.put(line)
        except Exception:
            pass
        self.lines.put(None)

    def read(self, count, timeout, quiet):
        events, eof, deadline = [], False, time.monotonic() + timeout
        while len(events) < count and not eof:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                eof = True
            else:
                events.append(line)
        if quiet and not eof:
            end = time.monotonic() + quiet
            while time.monotonic() < end:
                try:
                    line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
                except queue.Empty:
                    break
                if line is None:
                    eof = True
                    break
                events.append(line)
        return [decode(e) for e in events], eof

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes the reader, which holds the response's lock
            self.res.close()
            self.conn.close()
        except Exception:
            pass


def kept_headers(res):
    """The headers that count, lower case; `warning` as a sorted list because it may repeat."""
    head = {}
    for name in HEADERS:
        values = res.headers.get_all(name)
        if values:
            head[name] = sorted(values) if name == "warning" else values[-1]
    return head


def decode(raw):
    try:
        return json.loads(raw)
    except Exception:
        return raw.decode("utf-8", "replace")


def substitute(node, env):
    if isinstance(node, str):
        whole = re.fullmatch(r"\$\{(\w+):int\}", node)
        if whole:
            return int(env[whole.group(1)])
        return re.sub(r"\$\{(\w+)\}", lambda m: str(env.get(m.group(1), m.group(0))), node)
    if isinstance(node, list):
        return [substitute(n, env) for n in node]
    if isinstance(node, dict):
        return {substitute(k, env): substitute(v, env) for k, v in node.items()}
    return node


def lookup(node, dotted):
    for part in re.split(r"(?<!\\)\.", dotted):
        part = part.replace("\\.", ".")
        if isinstance(node, list) and part.lstrip("-").isdigit():
            node = node[int(part)] if -len(node) <= int(part) < len(node) else None
        elif isinstance(node, dict):
            node = node.get(part)
        else:
            return None
    return node


def condition_holds(body, cond):
    got = lookup(body, cond["path"])
    if "equals" in cond:
        return got == cond["equals"]
    if "exists" in cond:
        return got is not None
    return got is None


def perform(server, scenario):
    """Runs the steps; returns the raw answers, one per recorded step, and the environment."""
    env = {"u": "".join(random.choice("bcdfghjkmnpqrstvwxz") for _ in range(8))}
    env["ns"] = "t-" + env["u"]
    if scenario.get("namespace", True):
        status, _, raw = server.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": env["ns"]}})
        if status != 201:
            raise RuntimeError(f"namespace: {status} {raw[:200]!r}")
    answers, watches, number = [], {}, -1
    try:
        for number, step in enumerate(scenario["steps"]):
            step_ = {k: v for k, v in step.items() if k not in ("expect",)}
            step_ = substitute(step_, env)
            if "do" in step_:
                deadline = time.monotonic() + float(step_.get("timeout", 10))
                while True:
                    status, head, raw = server.request(step_["do"], step_["path"].replace(" ", "%20"), step_.get("body"), step_.get("type"), step_.get("headers"))
                    body = decode(raw) if raw else None
                    if "until" not in step_ or condition_holds(body, step_["until"]) or time.monotonic() > deadline:
                        break
                    time.sleep(0.1)
                for var, path in (step_.get("capture") or {}).items():
                    value = lookup(body, path)
                    env[var] = "" if value is None else value
                answer = {"status": status, "headers": head, "body": body}
            elif "watch" in step_:
                stream = Watch(server, step_["path"].replace(" ", "%20"), step_.get("headers"))
                watches[step_["watch"]] = stream
                answer = {"status": stream.status, "headers": stream.head}
            elif "read" in step_:
                events, eof = watches[step_["read"]].read(int(step_.get("count", 1)), float(step_.get("timeout", 5)), float(step_.get("quiet", 0)))
                answer = {"events": events, "eof": eof}
                for var, path in (step_.get("capture") or {}).items():
                    value = lookup(events, path)
                    env[var] = "" if value is None else value
            elif "close" in step_:
                watches.pop(step_["close"]).close()
                continue
            elif "sleep" in step_:
                time.sleep(float(step_["sleep"]))
                continue
            elif "sh" in step_:
                done = subprocess.run(["bash", "-c", step_["sh"]], input=step_.get("stdin", ""), capture_output=True, text=True, timeout=90,
                                      env={**os.environ, "KUBECONFIG": server.write_kubeconfig(), "HOME": "/nonexistent", "KUBECACHEDIR": tempfile.gettempdir() + "/conform-" + env["u"]})
                answer = {"exit": done.returncode, "stdout": shell_text(done.stdout, step_), "stderr": shell_text(done.stderr, step_)}
            else:
                raise RuntimeError(f"step {number}: unknown form {list(step_)}")
            if not step_.get("record", True) and "do" in step_ and step_["do"] != "DELETE" and not step_.get("may_fail"):
                if answer["status"] >= 400 or ("until" in step_ and not condition_holds(answer["body"], step_["until"])):
                    raise RuntimeError(f"set-up step {number} {step_['do']} {step_['path']}: {answer['status']} {json.dumps(answer['body'])[:200]}")
            if step_.get("record", True):
                for path in step_.get("mask") or []:
                    mask(answer.get("body", answer.get("events")), path.split("."))
                answers.append((number, answer))
    finally:
        for stream in watches.values():
            stream.close()
        for step in scenario["steps"][number + 1 :]:  # only after an exception: leave nothing behind
            if step.get("do") == "DELETE" and not step.get("record", True):
                try:
                    server.request("DELETE", substitute(step["path"], env))
                except Exception:
                    pass
        if scenario.get("namespace", True):
            try:
                server.request("DELETE", "/api/v1/namespaces/" + env["ns"])
            except Exception:
                pass
    return answers, env


def shell_text(text, step):
    lines = [re.sub(r"\s+", " ", line).rstrip() for line in text.splitlines()]
    lines = [re.sub(r"(?<![\w-])(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+s(?!\w)", "<age>", line) for line in lines]
    for pattern in step.get("mask_lines") or []:
        lines = [line for line in lines if not re.search(pattern, line)]
    return lines


def mask(node, parts):
    if not parts or node is None:
        return
    head, rest = parts[0], parts[1:]
    if head == "*":
        for child in (node if isinstance(node, list) else list(node.values()) if isinstance(node, dict) else []):
            mask(child, rest)
    elif isinstance(node, dict) and head in node:
        if rest:
            mask(node[head], rest)
        else:
            node[head] = "<masked>"
    elif isinstance(node, list) and head.isdigit() and int(head) < len(node):
        if rest:
            mask(node[int(head)], rest)
        else:
            node[int(head)] = "<masked>"


def normalise(answers, env, server):
    """Replaces what no two servers share. Object resourceVersions become their rank in the scenario."""
    versions, uids, names = set(), [], {}

    def survey(node, in_list=False):
        if isinstance(node, dict):
            meta = node.get("metadata")
            if isinstance(meta, dict):
                rv = meta.get("resourceVersion")
                if isinstance(rv, str) and rv.isdigit() and rv != "0" and not is_collection(node):
                    versions.add(int(rv))
                gen, name = meta.get("generateName"), meta.get("name")
                if gen and name and name.startswith(gen) and len(name) == len(gen[:58]) + 5:
                    names[name] = gen[:58] + "<rand>"
            for key, value in node.items():
                if key == "uid" and isinstance(value, str) and UUID.fullmatch(value) and value not in uids:
                    uids.append(value)
                survey(value)
        elif isinstance(node, list):
            for value in node:
                survey(value)

    for _, answer in answers:
        survey(answer)
    rank = {str(v): f"rv{i + 1}" for i, v in enumerate(sorted(versions))}
    uid_label = {u: f"uid{i + 1}" for i, u in enumerate(uids)}

    def text(s):
        for name, label in names.items():
            s = s.replace(name, label)
        for uid, label in uid_label.items():
            s = s.replace(uid, label)
        s = UUID.sub("<uuid>", s)
        s = s.replace(env["ns"], "$ns").replace(env["u"], "$u").replace(server.url, "$server")
        s = RFC3339.sub("<time>", s)
        s = re.sub(r"(resource version:? )\d+(, current: )\d+", r"\1<n>\2<n>", s)
        s = re.sub(r"(too old resource version: )\d+ \(\d+\)", r"\1<n> (<n>)", s)
        return re.sub(r"((?i:resource ?version)[^0-9]{0,40}?)(\d+)", lambda m: m.group(1) + rank.get(m.group(2), m.group(2)), s)

    def walk(node, key=None, collection=False):
        if isinstance(node, dict):
            whole = is_collection(node)
            return {text(k): walk(v, k, (whole and k == "metadata") or (collection and key == "metadata")) for k, v in node.items()}
        if isinstance(node, list):
            out = [walk(v) for v in node]
            return sorted(out, key=json.dumps) if key in ("causes", "managedFields") else out
        if isinstance(node, str):
            if key == "resourceVersion":
                return "<rv>" if collection and node not in ("", "0") else rank.get(node, node)
            if key == "continue" and node:
                return "<continue>"
            return text(node)
        return node

    return [(number, walk(answer)) for number, answer in answers]


def is_collection(node):
    """Lists, tables and bookmarks carry the store's revision, not an object's."""
    kind = node.get("kind") or ""
    bookmark = isinstance(node.get("metadata"), dict) and set(node["metadata"]) <= {"resourceVersion", "annotations", "creationTimestamp"}
    return "items" in node or "rows" in node or kind.endswith("List") or bookmark


def differences(want, got, path=""):
    if type(want) is not type(got):
        yield path, want, got
    elif isinstance(want, dict):
        for key in sorted(set(want) | set(got)):
            if key not in want:
                yield f"{path}.{key}", "<absent>", got[key]
            elif key not in got:
                yield f"{path}.{key}", want[key], "<absent>"
            else:
                yield from differences(want[key], got[key], f"{path}.{key}")
    elif isinstance(want, list):
        if len(want) != len(got):
            yield f"{path}.length", len(want), len(got)
        for i, (w, g) in enumerate(zip(want, got)):
            yield from differences(w, g, f"{path}[{i}]")
    elif want != got:
        yield path, want, got


def files_under(paths, endings):
    for path in paths:
        if os.path.isdir(path):
            for folder, _, names in sorted(os.walk(path)):
                for name in sorted(names):
                    if name.endswith(endings):
                        yield os.path.join(folder, name)
        else:
            yield path


def run(args, server):
    todo = []
    for path in files_under(args.paths, (".jsonl",)):
        area = os.path.splitext(os.path.basename(path))[0]
        todo += [(f"{area}/{scenario['name']}", scenario) for scenario in map(json.loads, open(path))]
    todo = [(name, scenario) for name, scenario in todo if not args.only or re.search(args.only, name)]
    passed, failed, by_area = 0, 0, {}

    def one(job):
        path, transcript = job
        try:
            answers, env = perform(server, transcript)
            got = dict(normalise(answers, env, server))
            want = {int(k): v for k, v in transcript["answers"].items()}
            diffs = [(f"step {n}{p}", w, g) for n in sorted(want) for p, w, g in differences(want[n], got.get(n))]
        except Exception as error:
            diffs = [("run", "an answer", f"{type(error).__name__}: {error}")]
        return path, transcript, diffs

    alone = [job for job in todo if job[0].startswith("admission/")]  # policies and webhooks bind the whole server: one at a time
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        beside = pool.map(one, [job for job in todo if job not in alone])
        for path, transcript, diffs in itertools.chain(beside, map(one, alone)):
            area = by_area.setdefault(path.split("/")[0], [0, 0])
            area[0] += not diffs
            area[1] += 1
            if not diffs:
                passed += 1
                if args.verbose:
                    print("ok   ", path)
                continue
            failed += 1
            print("FAIL ", path, "-", transcript.get("about", ""))
            for where, want, got in diffs[: args.diffs]:
                print(f"       {where}\n         want {json.dumps(want)[:300]}\n         got  {json.dumps(got)[:300]}")
            if len(diffs) > args.diffs:
                print(f"       (+{len(diffs) - args.diffs} more)")
    for area, (good, all_) in sorted(by_area.items()):
        print(f"{area}: {good}/{all_}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not todo else 0


def keep(path, scenario):
    """Put a scenario into the file of its area, sorted by name, in the place of one of the same name."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    lines = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
    lines = [line for line in lines if line["name"] != scenario["name"]] + [scenario]
    with open(path, "w") as file:
        for line in sorted(lines, key=lambda line: line["name"]):
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def record(args, server):
    import yaml
    written = threading.Lock()
    todo = []
    for path in files_under(args.paths, (".yaml",)):
        if args.only and not re.search(args.only, path):
            continue
        area = os.path.splitext(os.path.basename(path))[0]
        todo += [(area, scenario) for scenario in yaml.safe_load_all(open(path)) if scenario]

    def one(job):
        area, scenario = job
        takes = []
        try:
            for _ in range(args.takes):
                answers, env = perform(server, scenario)
                takes.append(normalise(answers, env, server))
        except Exception as error:
            return f"ERROR {area} {scenario['name']} {type(error).__name__}: {error}"
        unstable = [d for take in takes[1:] for (n, w), (_, g) in zip(takes[0], take) for d in differences(w, g, f"step {n}")]
        if unstable:
            shown = [f"{p}: {json.dumps(w)[:90]} / {json.dumps(g)[:90]}" for p, w, g in unstable[:4]]
            return f"UNSTABLE {area} {scenario['name']} {shown}"
        scenario["answers"] = {str(n): a for n, a in takes[0]}
        with written:
            keep(os.path.join(args.out, area + ".jsonl"), scenario)
        return None

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for complaint in pool.map(one, todo):
            if complaint:
                bad += 1
                print(complaint, flush=True)
    print(f"{len(todo) - bad} recorded, {bad} not")
    return 1 if bad else 0


def main():
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("mode", choices=("run", "record"))
    cli.add_argument("paths", nargs="+")
    cli.add_argument("--server", required=True)
    cli.add_argument("--token")
    cli.add_argument("--out", default="transcripts")
    cli.add_argument("--only", help="regular expression on AREA/NAME")
    cli.add_argument("--diffs", type=int, default=6)
    cli.add_argument("--takes", type=int, default=2)
    cli.add_argument("--jobs", type=int, default=4)
    cli.add_argument("-v", "--verbose", action="store_true")
    args = cli.parse_args()
    server = Server(args.server.rstrip("/"), args.token)
    sys.exit((run if args.mode == "run" else record)(args, server))


if __name__ == "__main__":
    main()
