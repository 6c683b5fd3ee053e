package sources

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxFile bounds what is read of a file: /proc/zoneinfo of a machine with 16 NUMA nodes and 1,024 CPUs is smaller.
const maxFile = 16 << 20

var errTooLong = errors.New("the file is longer than 16 MiB")

// file is a file that stays open. It is not safe for concurrent use.
type file struct {
	path string
	file *os.File
}

// read returns the content. It is in the buffer, which grows as needed, and valid until that is used again. A file of a
// cgroup that was removed cannot be read any more, also if there is another one at its path: it is opened again then.
func (f *file) read(buffer *[]byte) ([]byte, error) {
	if f.file != nil {
		if data, err := readOpen(f.file, buffer); err == nil {
			return data, nil
		}
		f.close()
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	data, err := readOpen(opened, buffer)
	if err != nil {
		_ = opened.Close() // The error of reading says more.
		return nil, err
	}
	f.file = opened
	return data, nil
}

func (f *file) close() {
	if f.file != nil {
		_ = f.file.Close() // It was only read.
		f.file = nil
	}
}

// readOpen returns the content of an open file from its beginning.
func readOpen(opened io.ReaderAt, buffer *[]byte) ([]byte, error) {
	if *buffer == nil {
		*buffer = make([]byte, 4<<10)
	}
	for {
		n, err := opened.ReadAt(*buffer, 0)
		if errors.Is(err, io.EOF) {
			return (*buffer)[:n], nil
		}
		if err != nil {
			return nil, err
		}
		if len(*buffer) >= maxFile {
			return nil, errTooLong
		}
		*buffer = make([]byte, 2*len(*buffer))
	}
}

// File is a file of the node. It is safe for concurrent use.
type File struct {
	mu     sync.Mutex
	file   file
	buffer []byte
}

// NewFile returns a reader of the file at a path, which need not exist.
func NewFile(path string) *File { return &File{file: file{path: path}} }

// Read calls f with the whole lines of the content, which are valid until f returns. The file stays open.
func (n *File) Read(f func(data []byte) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	data, err := n.file.read(&n.buffer)
	if err != nil {
		return err
	}
	return f(wholeLines(data))
}

// Close closes the file until it is read again.
func (n *File) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.file.close()
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
	files  map[types.UID]*file
	buffer []byte
}

// NewPodFiles returns a reader of the files of a name, in the cgroups of a controller.
func NewPodFiles(cgroups Cgroups, controller, name string) *PodFiles {
	return &PodFiles{cgroups: cgroups, controller: controller, name: name, files: map[types.UID]*file{}}
}

// Each calls f with the whole lines of the file of each pod, which are valid until f returns. Pods whose file cannot be
// read are left out. The files stay open; those of pods that are not listed are closed.
func (p *PodFiles) Each(pods []*v1.Pod, f func(pod types.UID, data []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mount := p.cgroups.Mounts[p.controller]
	if mount == "" {
		return
	}
	listed := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		listed[pod.UID] = true
		opened := p.files[pod.UID]
		if opened == nil {
			opened = &file{path: filepath.Join(mount, p.cgroups.Path(pod), p.name)}
			p.files[pod.UID] = opened
		}
		if data, err := opened.read(&p.buffer); err == nil {
			f(pod.UID, wholeLines(data))
		}
	}
	for uid, opened := range p.files {
		if !listed[uid] {
			opened.close()
			delete(p.files, uid)
		}
	}
}

// Close closes all files until they are read again.
func (p *PodFiles) Close() { p.Each(nil, nil) }
