package server

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeJournal has the logs of services.
type fakeJournal map[string]string

func (j fakeJournal) hasService(_ context.Context, service string) bool {
	_, ok := j[service]
	return ok
}

func (j fakeJournal) copyLogs(_ context.Context, w io.Writer, services []string, o logOptions) error {
	for _, service := range services {
		if j[service] == "" {
			return fmt.Errorf("no journal")
		}
		fmt.Fprintf(w, "%s %q\n", j[service], o.pattern)
	}
	return nil
}

func TestSystemLogs(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"syslog": "sys\n", "app/app.log": "app\n", "other.log": "other\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path string
		code int
		body string
	}{
		{"/logs/syslog", 200, "sys\n"},
		{"/logs/", 200, "other.log"},
		{"/logs/none", 404, ""},
		{"/logs/../../etc/passwd", 404, ""},
		{"/logs/?query=kubelet", 200, `journaled ""`},
		{"/logs/?query=kubelet&pattern=x", 200, `journaled "x"`},
		{"/logs/?query=app", 200, "app\n"},
		{"/logs/?query=other", 200, "other\n"},
		{"/logs/?query=none", 200, "log not found for none"},
		{"/logs/?query=other&tailLines=3", 200, "try without specifying options"},
		{"/logs/?query=broken", 200, "error: journal output not available"},
		{"/logs/?query=/syslog", 200, "sys\n"},
		{"/logs/?query=kubelet&query=other", 200, "other\n"},
		{"/logs/syslog?query=kubelet", 406, "path not allowed in query mode"},
		{"/logs/?query=a%3Bb", 406, "unsupported characters"},
		{"/logs/?query=%20", 400, "may not be empty"},
		{"/logs/?tailLines=3", 406, "cannot be empty with options"},
	}
	logs := NewSystemLogs(dir, true)
	server := httptest.NewServer(withJournal(dir, fakeJournal{"kubelet": "journaled", "broken": ""}))
	defer server.Close()
	for _, tc := range tests {
		code, body := get(t, server.URL+tc.path)
		if code != tc.code || !strings.Contains(body, tc.body) {
			t.Errorf("%s: %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
		}
	}
	recorder := httptest.NewRecorder()
	logs.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/logs/syslog", nil))
	if recorder.Body.String() != "sys\n" {
		t.Errorf("file through the real handler: %q", recorder.Body)
	}
}

func withJournal(dir string, j journal) http.Handler {
	logs := &systemLogs{dir: dir, files: http.FileServer(http.Dir(dir)), journal: j}
	return http.StripPrefix("/logs/", logs)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServiceLogsCompressed(t *testing.T) {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/logs/?query=kubelet", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	withJournal(t.TempDir(), fakeJournal{"kubelet": "journaled"}).ServeHTTP(recorder, request)
	reader, err := gzip.NewReader(recorder.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(reader)
	if err != nil || string(body) != "journaled \"\"\n" {
		t.Errorf("got %q, %v", body, err)
	}
}

// If queries are disabled, a request for one is a request for the directory.
func TestLogQueriesDisabled(t *testing.T) {
	recorder := httptest.NewRecorder()
	NewSystemLogs(t.TempDir(), false).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/logs/?query=a%3Bb", nil))
	if recorder.Code != http.StatusOK {
		t.Errorf("got %d", recorder.Code)
	}
}
