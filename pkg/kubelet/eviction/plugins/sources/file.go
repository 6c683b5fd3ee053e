package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
)

// errUnexpected is the error for a file that has not what the kernel writes there.
var errUnexpected = errors.New("not as the kernel writes it")

// File is a file of the node. It is safe for concurrent use.
type File struct {
	mu     sync.Mutex
	file   openfile.File
	buffer []byte
}

// NewFile returns a reader of the file at a path, which need not exist.
func NewFile(path string) *File { return &File{file: openfile.New(path)} }

// Read calls f with the whole lines of the content, which are valid until f returns. The file stays open. Errors name
// its path, those of f too.
func (n *File) Read(f func(data []byte) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	data, err := n.file.Read(&n.buffer)
	if err != nil {
		return err
	}
	if err := f(wholeLines(data)); err != nil {
		return fmt.Errorf("%s: %w", n.file.Path(), err)
	}
	return nil
}

// Close closes the file until it is read again.
func (n *File) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.file.Close()
	n.buffer = nil
}

// Cgroups is where the cgroups of pods are.
type Cgroups struct {
	// Unified: cgroup v2.
	Unified bool
	// Mounts are the mount points of controllers. Without any, pods have no cgroups.
	Mounts map[string]string
	// Path returns the path of a pod's cgroup below a mount point.
	Path func(pod *v1.Pod) string
}

// PodFiles is a file that the cgroup of each pod has. It is safe for concurrent use.
type PodFiles struct {
	cgroups          Cgroups
	controller, name string

	mu     sync.Mutex
	files  map[types.UID]*openfile.File
	buffer []byte
}

// NewPodFiles returns a reader of the files of a name, in the cgroups of a controller.
func NewPodFiles(cgroups Cgroups, controller, name string) *PodFiles {
	return &PodFiles{cgroups: cgroups, controller: controller, name: name, files: map[types.UID]*openfile.File{}}
}

// errNoMount: there are no cgroups of a controller.
var errNoMount = errors.New("no cgroup file system is mounted for the controller")

// Each calls f with the whole lines of the file of each pod, which are valid until f returns. The files stay open;
// those of pods that are not listed are closed. It goes on after an error, and returns the first one, which names the
// file, with the number of pods that have one. A pod without a cgroup is no error unless no pod has one: it has not
// been started yet, or has ended.
func (p *PodFiles) Each(pods []*v1.Pod, f func(pod types.UID, data []byte) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.closeUnlisted(pods)
	mount := p.cgroups.Mounts[p.controller]
	if mount == "" && len(pods) > 0 {
		return fmt.Errorf("%s: %w %q", p.name, errNoMount, p.controller)
	}
	var first, absent error
	failed, found := 0, false
	for _, pod := range pods {
		opened := p.files[pod.UID]
		if opened == nil {
			file := openfile.New(filepath.Join(mount, p.cgroups.Path(pod), p.name))
			opened = &file
			p.files[pod.UID] = opened
		}
		data, err := opened.Read(&p.buffer)
		switch {
		case err == nil:
			found = true
			if err = f(pod.UID, wholeLines(data)); err == nil {
				continue
			}
			err = fmt.Errorf("%s: %w", opened.Path(), err)
		case errors.Is(err, os.ErrNotExist):
			absent = firstOf(absent, err)
			continue
		}
		failed++
		first = firstOf(first, err)
	}
	switch {
	case first != nil:
		return fmt.Errorf("%w (so for %d of %d pods)", first, failed, len(pods))
	case !found && absent != nil:
		return fmt.Errorf("%w (so for all %d pods)", absent, len(pods))
	}
	return nil
}

// firstOf returns the first of two errors that is not nil.
func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (p *PodFiles) closeUnlisted(pods []*v1.Pod) {
	listed := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		listed[pod.UID] = true
	}
	for uid, opened := range p.files {
		if !listed[uid] {
			opened.Close()
			delete(p.files, uid)
		}
	}
}

// Close closes all files until they are read again.
func (p *PodFiles) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeUnlisted(nil)
	p.buffer = nil
}

// join returns the errors in one line, nil if there are none.
func join(errs ...error) (all error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
