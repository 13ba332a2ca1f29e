"""A MySQL server that accepts every user and every statement: mysql.py PORT

It returns its version for the query "select @@VERSION;", and no rows for other queries.
"""

import socketserver
import struct
import sys

OK = b"\0\0\0\2\0\0\0"
END = b"\xfe\0\0\2\0"
QUIT, QUERY = 1, 3


def text(value):
    return bytes([len(value)]) + value


class Session(socketserver.StreamRequestHandler):
    def send(self, *packets):
        for packet in packets:
            self.number += 1
            self.wfile.write(struct.pack("<I", len(packet))[:3] + bytes([self.number & 255]) + packet)

    def receive(self):
        head = self.rfile.read(4)
        if len(head) < 4:
            return b""
        self.number = head[3]
        return self.rfile.read(int.from_bytes(head[:3], "little"))

    def handle(self):
        self.number = -1
        # Protocol 4.1 with mysql_native_password.
        self.send(
            b"\x0a8.0.21\0" + struct.pack("<I", 1) + b"12345678\0\0\x82\x21\2\0\x08\0\x15" + bytes(10)
            + b"123456789012\0mysql_native_password\0"
        )
        if not self.receive():
            return
        self.send(OK)
        while (command := self.receive()) and command[0] != QUIT:
            query = command[1:].lower()
            if command[0] != QUERY or not query.startswith((b"select", b"show")):
                self.send(OK)
                continue
            column = text(b"def") + text(b"") * 3 + text(b"value") * 2 + b"\x0c\x21\0\xff\0\0\0\xfd\0\0\0\0\0"
            rows = [text(b"8.0.21-12.1")] if b"@@version" in query else []
            self.send(b"\1", column, END, *rows, END)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Session).serve_forever()
