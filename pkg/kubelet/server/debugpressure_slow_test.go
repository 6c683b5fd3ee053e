package server

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
)

// oneConnection is a listener with one connection.
type oneConnection struct {
	once       sync.Once
	connection net.Conn
	closed     chan struct{}
}

func (l *oneConnection) Accept() (c net.Conn, err error) {
	l.once.Do(func() { c = l.connection })
	if c == nil {
		<-l.closed
		err = net.ErrClosed
	}
	return c, err
}

func (l *oneConnection) Close() error {
	close(l.closed)
	return nil
}

func (*oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// A client that never reads is disconnected: neither its page nor the records of it stay in memory.
func TestAClientThatNeverReads(t *testing.T) {
	for _, page := range []string{"decisions", "decisions?trace=true", "decisions/1", "status?rank=true", "watch"} {
		t.Run(page, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := decided(t)
				for i := range 100 {
					name := fmt.Sprint(strings.Repeat("n", 200), i)
					log.Admission(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, decisionlog.Rejected, name, name)
				}
				client, connection := net.Pipe()
				defer client.Close()
				ended := make(chan struct{})
				server := &http.Server{Handler: pressureHandler(t, log), ConnState: func(_ net.Conn, s http.ConnState) {
					if s == http.StateClosed {
						close(ended)
					}
				}}
				listener := &oneConnection{connection: connection, closed: make(chan struct{})}
				go func() { _ = server.Serve(listener) }()
				began := time.Now()
				const header = "GET /debug/pressure/%s HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer reader\r\n\r\n"
				if _, err := fmt.Fprintf(client, header, page); err != nil {
					t.Fatal(err)
				}
				<-ended
				if took := time.Since(began); took > time.Minute {
					t.Errorf("disconnected after %s", took)
				}
				if n := log.Status(false).Log.Watchers; n != 0 {
					t.Errorf("%d clients watch", n)
				}
				_ = server.Close()
			})
		})
	}
}
