package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Names of the images that every development cluster has.
const (
	ImagePause   = "localhost/pause:1"
	ImageBusybox = "localhost/busybox:1"
	ImageHog     = "localhost/hog:1"
)

// Image describes a container image of one layer.
type Image struct {
	// Name with tag, as a pod refers to it.
	Name       string
	Entrypoint []string
	Cmd        []string
	// User is the user of the container unless the pod has another one.
	User string
	// Root is a directory with the base content of the image, "" for none.
	Root string
	// Files maps absolute paths in the image to files of this machine.
	Files map[string]string
	// Links maps absolute paths in the image to the targets of symbolic links.
	Links map[string]string
	// Content maps absolute paths in the image to text.
	Content map[string]string
}

// descriptor is the reference of one blob of an image to another.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// WriteTar writes the image in the OCI layout as an archive, which containerd
// imports.
func (i Image) WriteTar(out io.Writer) error {
	blobs, err := i.blobs()
	if err != nil {
		return err
	}
	return blobs.write(out)
}

// WriteDir writes the image in the OCI layout into dir.
func (i Image) WriteDir(dir string) error {
	blobs, err := i.blobs()
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(blobs) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("write image %s: %w", i.Name, err)
		}
		if err := os.WriteFile(file, blobs[name], 0o644); err != nil {
			return fmt.Errorf("write image %s: %w", i.Name, err)
		}
	}
	return nil
}

// blobs are all files of the image in the OCI layout.
func (i Image) blobs() (blobSet, error) {
	layer, err := i.layer()
	if err != nil {
		return nil, fmt.Errorf("make layer of %s: %w", i.Name, err)
	}
	blobs := blobSet{}
	layerRef := blobs.add("application/vnd.oci.image.layer.v1.tar", layer)
	configRef := blobs.add("application/vnd.oci.image.config.v1+json", i.config(layerRef.Digest))
	manifestRef := blobs.add("application/vnd.oci.image.manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        configRef,
		"layers":        []descriptor{layerRef},
	}))
	manifestRef.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	blobs["index.json"] = encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifestRef}})
	blobs["oci-layout"] = encode(map[string]any{"imageLayoutVersion": "1.0.0"})
	return blobs, nil
}

func (i Image) config(layerDigest string) []byte {
	return encode(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint,
			"Cmd":        i.Cmd,
			"User":       i.User,
			"WorkingDir": "/",
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDigest}},
	})
}

// layer is the image's files as a tar archive, in a fixed order and without
// times, so that the same content always has the same digest.
func (i Image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	w := layerWriter{tar: tar.NewWriter(&buffer), dirs: map[string]bool{"": true, ".": true}}
	w.dir("tmp", 0o1777)
	w.dir("root", 0o700)
	w.tree(i.Root)
	for _, name := range sortedKeys(i.Files) {
		w.file(name, i.Files[name])
	}
	for _, name := range sortedKeys(i.Links) {
		w.entry(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: i.Links[name], Mode: 0o777}, nil)
	}
	for _, name := range sortedKeys(i.Content) {
		w.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(i.Content[name]))},
			[]byte(i.Content[name]))
	}
	if w.err != nil {
		return nil, w.err
	}
	if err := w.tar.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// layerWriter stores the first error, so that callers need not check each call.
type layerWriter struct {
	tar  *tar.Writer
	dirs map[string]bool
	err  error
}

func (w *layerWriter) file(name, source string) {
	data, err := os.ReadFile(source)
	if err != nil && w.err == nil {
		w.err = err
	}
	info, err := os.Stat(source)
	if err != nil {
		return
	}
	mode := int64(0o755)
	if info.Mode()&os.ModeSetuid != 0 {
		mode = 0o4755
	}
	w.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
}

func (w *layerWriter) dir(name string, mode int64) {
	if w.dirs[name] {
		return
	}
	w.dirs[name] = true
	w.dir(path.Dir(name), 0o755)
	w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (w *layerWriter) entry(header *tar.Header, data []byte) {
	header.Name = strings.TrimPrefix(header.Name, "/")
	w.dir(path.Dir(strings.TrimSuffix(header.Name, "/")), 0o755)
	if w.err == nil {
		w.err = w.tar.WriteHeader(header)
	}
	if w.err == nil {
		_, w.err = w.tar.Write(data)
	}
}

// blobSet is the files of an image archive by name.
type blobSet map[string][]byte

func (b blobSet) add(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	b["blobs/sha256/"+sum] = data
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

func (b blobSet) write(out io.Writer) error {
	archive := tar.NewWriter(out)
	for _, name := range sortedKeys(b) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(b[name]))}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
		if _, err := archive.Write(b[name]); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
	}
	return archive.Close()
}

// encode is for values that always have a JSON encoding.
func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
