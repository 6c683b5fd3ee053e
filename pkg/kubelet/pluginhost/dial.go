package pluginhost

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dial connects to the socket and checks who listens. The error is a *refusal if the socket, or the process that
// listens, is not allowed.
func (h *Host) dial(ctx context.Context, socket string) (net.Conn, error) {
	path, refused := h.locate(socket)
	if refused != nil {
		return nil, refused
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := h.checkOwner(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkOwner returns an error for a connection to a process of a user that is not allowed. Under Token the process may
// run as any user: what it may do is a matter of its token.
func (h *Host) checkOwner(conn net.Conn) error {
	if a := h.cfg.Authentication(); a == None || a == Token {
		return nil
	}
	owner, err := peerUID(conn)
	if err != nil {
		return fmt.Errorf("reading the owner of the socket: %w", err)
	}
	if owner != h.cfg.Owner {
		return &refusal{foreignOwner, fmt.Sprintf("the process at the endpoint runs as the user %d and not as %d", owner,
			h.cfg.Owner)}
	}
	return nil
}

// peerUID returns the effective user of the process at the other end when it began to listen: unix(7), SO_PEERCRED.
func peerUID(conn net.Conn) (uint32, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is not a connection of a Unix socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = peerErr
	}
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// socketFile returns the file of an endpoint, which must be a socket in a watched directory, and its path without
// symbolic links.
func (h *Host) socketFile(endpoint string) (path string, file fs.FileInfo, refused *refusal) {
	if path, refused = h.locate(endpoint); refused != nil {
		return "", nil, refused
	}
	file, err := os.Lstat(path)
	if err != nil {
		return "", nil, &refusal{invalidEndpoint, err.Error()}
	}
	if file.Mode().Type() != fs.ModeSocket {
		return "", nil, &refusal{invalidEndpoint, "the endpoint is not a socket"}
	}
	return path, file, nil
}

// locate returns the path of an endpoint without symbolic links. It is inside a watched directory.
func (h *Host) locate(endpoint string) (string, *refusal) {
	if !filepath.IsAbs(endpoint) {
		return "", &refusal{invalidEndpoint, "the endpoint is not an absolute path"}
	}
	path, err := filepath.EvalSymlinks(endpoint)
	if err != nil {
		return "", &refusal{invalidEndpoint, err.Error()}
	}
	for _, directory := range h.cfg.Directories {
		if contains(directory, path) {
			return path, nil
		}
	}
	return "", &refusal{invalidEndpoint, "the endpoint is not inside a directory that is watched for plugins"}
}

// contains returns whether the path, which has no symbolic links, is inside the directory.
func contains(directory, path string) bool {
	directory, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return false
	}
	relative, err := filepath.Rel(directory, path)
	return err == nil && relative != "." && filepath.IsLocal(relative)
}
