"""A ZooKeeper with the requests that zookeeper-operator sends: create, delete, exists, get, set and ping.

    zookeeper.py PORT [FILE]

FILE keeps the nodes, so that several Pods share them. Without it they are in memory.
"""

import json
import os
import socketserver
import struct
import sys
import threading

NO_NODE, NODE_EXISTS, BAD_VERSION, UNIMPLEMENTED = -101, -110, -103, -6
CREATE, DELETE, EXISTS, GET, SET, PING, CLOSE = 1, 2, 3, 4, 5, 11, -11

lock = threading.Lock()
memory = {}


def load():
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        with open(sys.argv[2]) as file:
            return json.load(file)
    return memory


def store(nodes):
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as file:
            json.dump(nodes, file)


def buffer(body, at):
    (length,) = struct.unpack_from(">i", body, at)
    length = max(length, 0)
    return body[at + 4 : at + 4 + length].decode(), at + 4 + length


def stat(node):
    data, version = node
    return struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, version, 0, 0, 0, len(data), 0, 1)


def answer(kind, body):
    """Returns the error and the body of the answer to a request."""
    if kind == PING:
        return 0, b""
    if kind not in (CREATE, DELETE, EXISTS, GET, SET):
        return UNIMPLEMENTED, b""
    nodes = load()
    path, at = buffer(body, 0)
    if kind == CREATE:
        if path in nodes:
            return NODE_EXISTS, b""
        nodes[path] = (buffer(body, at)[0], 0)
        store(nodes)
        return 0, struct.pack(">i", len(path)) + path.encode()
    if path not in nodes:
        return NO_NODE, b""
    if kind == DELETE:
        del nodes[path]
        store(nodes)
        return 0, b""
    data, version = nodes[path]
    if kind == SET:
        new, at = buffer(body, at)
        (wanted,) = struct.unpack_from(">i", body, at)
        if wanted not in (-1, version):
            return BAD_VERSION, b""
        nodes[path] = (new, version + 1)
        store(nodes)
    if kind == GET:
        return 0, struct.pack(">i", len(data)) + data.encode() + stat(nodes[path])
    return 0, stat(nodes[path])


class Session(socketserver.StreamRequestHandler):
    def message(self):
        head = self.rfile.read(4)
        return self.rfile.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None

    def send(self, body):
        self.wfile.write(struct.pack(">i", len(body)) + body)

    def handle(self):
        hello = self.message()
        if not hello:
            return
        (timeout,) = struct.unpack_from(">i", hello, 12)
        self.send(struct.pack(">iiqi", 0, timeout, 1, 16) + bytes(16))
        while body := self.message():
            xid, kind = struct.unpack_from(">ii", body)
            with lock:
                error, reply = (0, b"") if kind == CLOSE else answer(kind, body[8:])
            self.send(struct.pack(">iqi", xid, 1, error) + reply)
            if kind == CLOSE:
                return


socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Session).serve_forever()
