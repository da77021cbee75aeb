"""Stands between a client and a server that speak TLS, with a certificate of its own.

interceptor.py CERTIFICATE KEY PORT: says on which port it listens, and passes on to PORT of
127.0.0.1 what it hears. Both sides believe that nobody can listen.
"""

import select
import socket
import ssl
import sys
import threading


def relay(client, server):
    ends = {client: server, server: client}
    for end in ends:
        end.setblocking(False)
    while True:
        ready = [end for end in ends if end.pending()] or select.select(list(ends), [], [])[0]
        for end in ready:
            try:
                data = end.recv(65536)
            except ssl.SSLWantReadError:
                continue
            if not data:
                return
            other = ends[end]
            other.setblocking(True)
            other.sendall(data)
            other.setblocking(False)


def serve(client, certificate, key, port):
    request = client.recv(8, socket.MSG_WAITALL)
    client.sendall(b"S")
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    server = socket.create_connection(("127.0.0.1", port))
    server.sendall(request)
    assert server.recv(1) == b"S"
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with own.wrap_socket(client, server_side=True) as client, trusting.wrap_socket(server) as server:
        try:
            relay(client, server)
        except OSError:
            pass  # One end has closed without a farewell.


def main():
    certificate, key, port = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        arguments = (client, certificate, key, int(port))
        threading.Thread(target=serve, args=arguments, daemon=True).start()


main()
