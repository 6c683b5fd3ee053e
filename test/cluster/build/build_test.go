package build

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	archive := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			content = []byte("-> " + header.Linkname)
		}
		files[header.Name] = content
	}
}

func testImage(t *testing.T) Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Image{
		Name:       "localhost/test:1",
		Entrypoint: []string{"/usr/bin/program"},
		Files:      map[string]string{"/usr/bin/program": program},
		Links:      map[string]string{"/bin/p": "/usr/bin/program"},
		Content:    map[string]string{"/etc/passwd": "root\n"},
	}
}

func TestImageHoldsItsFiles(t *testing.T) {
	var out bytes.Buffer
	if err := testImage(t).WriteTar(&out); err != nil {
		t.Fatal(err)
	}
	files := untar(t, out.Bytes())
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "localhost/test:1" {
		t.Errorf("name is %q", name)
	}
	var manifest struct {
		Layers []descriptor `json:"layers"`
	}
	blob := func(d descriptor) []byte { return files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")] }
	if err := json.Unmarshal(blob(index.Manifests[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	layer := untar(t, blob(manifest.Layers[0]))
	for name, want := range map[string]string{
		"usr/bin/program": "binary", "bin/p": "-> /usr/bin/program", "etc/passwd": "root\n", "usr/": "", "usr/bin/": "",
		"tmp/": "",
	} {
		if got, found := layer[name]; !found || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, found, want)
		}
	}
}

func TestImageIsTheSameEachTime(t *testing.T) {
	image := testImage(t)
	var first, second bytes.Buffer
	if err := errors.Join(image.WriteTar(&first), image.WriteTar(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one image differ")
	}
}

func TestStampFollowsTheModule(t *testing.T) {
	root := t.TempDir()
	module := filepath.Join(root, "mod")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := Builder{Root: root, Out: root}
	part := Part{Name: "x", Module: "mod", Package: "example.com/x"}
	write("one")
	first := b.stamp(part)
	if b.stamp(part) != first {
		t.Error("the stamp of the same is another")
	}
	write("two")
	second := b.stamp(part)
	part.Tags = "tag"
	if second == first || b.stamp(part) == second {
		t.Error("the stamp does not follow the module's files and the flags")
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Millisecond: "1 s", 45 * time.Second: "45 s", 100 * time.Second: "2 min", 8 * time.Minute: "8 min",
	} {
		if got := roughly(d); got != want {
			t.Errorf("roughly(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestVersionIsStampedEverywhere(t *testing.T) {
	flags := Kubelet().LDFlags
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3+plimsoll.0",
		"-X k8s.io/client-go/pkg/version.gitVersion=v1.36.3+plimsoll.0",
		"-X k8s.io/component-base/version.gitMinor=36",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("%q is not in %q", want, flags)
		}
	}
}
