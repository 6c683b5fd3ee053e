package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"time"
)

// logQueryTimeout bounds one query over all its services.
const logQueryTimeout = 30 * time.Second

// writeServices writes the response to a query for services. Errors after its beginning can only be reported in its
// text.
func (s *systemLogs) writeServices(w http.ResponseWriter, req *http.Request, query *logQuery) {
	ctx, cancel := context.WithTimeout(req.Context(), logQueryTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	if req.Header.Get("Accept-Encoding") != "gzip" {
		s.copyServices(ctx, w, query)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		fmt.Fprintf(w, "\nfailed to get gzip writer: %v\n", err)
		return
	}
	s.copyServices(ctx, compressed, query)
	_ = compressed.Close() // fails only if the client has disconnected
}

// copyServices writes the logs of services in the journal, then the log files of services that do not use it.
func (s *systemLogs) copyServices(ctx context.Context, w io.Writer, query *logQuery) {
	var inJournal, inFiles []string
	for _, service := range query.services {
		if s.journal.hasService(ctx, service) {
			inJournal = append(inJournal, service)
		} else {
			inFiles = append(inFiles, service)
		}
	}
	if len(inJournal) > 0 {
		if err := s.journal.copyLogs(ctx, w, inJournal, query.options); err != nil &&
			(query.options.boot == nil || *query.options.boot == 0) {
			fmt.Fprint(w, "\nerror: journal output not available\n")
		}
	}
	if len(inFiles) > 0 && query.options != (logOptions{}) {
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", inFiles)
		return
	}
	for _, service := range inFiles {
		s.copyFile(ctx, w, service)
	}
}

// copyFile writes the log file of a service: <service>, <service>.log or <service>/<service>.log, whichever exists
// first.
func (s *systemLogs) copyFile(ctx context.Context, w io.Writer, service string) {
	if err := ctx.Err(); err != nil {
		fmt.Fprintf(w, "\ncontext error: %v\n", err)
		return
	}
	var err error
	for _, name := range []string{service, service + ".log", path.Join(service, service+".log")} {
		if err = copyRegular(ctx, w, s.dir, name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(w, "\nlog not found for %s\n", service)
	default:
		fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
	}
}

// copyRegular copies a file below dir. A directory counts as missing.
func copyRegular(ctx context.Context, w io.Writer, dir, name string) error {
	file, err := os.OpenInRoot(dir, name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist
	}
	_, err = io.Copy(w, cancelableReader{ctx, file})
	return err
}

// cancelableReader ends a copy when ctx ends.
type cancelableReader struct {
	ctx  context.Context
	file io.Reader
}

// Read reads unless the context has ended.
func (r cancelableReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}
