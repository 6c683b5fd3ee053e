package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Images returns the images of every development cluster. They need the programs of ClusterParts and a static busybox.
func (b Builder) Images() ([]Image, error) {
	busybox, err := b.busybox()
	if err != nil {
		return nil, err
	}
	return []Image{
		{Name: ImagePause, Entrypoint: []string{"/pause"}, Files: map[string]string{"/pause": b.Path("pause")}},
		{Name: ImageHog, Entrypoint: []string{"/hog"}, Files: map[string]string{"/hog": b.Path("hog")}},
		busybox,
	}, nil
}

// busybox is a small userland: a shell, a web server, and the usual tools.
func (b Builder) busybox() (Image, error) {
	source := BusyboxPath()
	if source == "" {
		return Image{}, errors.New("no statically linked busybox found")
	}
	applets, err := exec.Command(source, "--list").Output()
	if err != nil {
		return Image{}, fmt.Errorf("list applets of %s: %w", source, err)
	}
	links := map[string]string{}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			links["/bin/"+applet] = "/bin/busybox"
		}
	}
	return Image{
		Name:  ImageBusybox,
		Cmd:   []string{"sh"},
		Files: map[string]string{"/bin/busybox": source},
		Links: links,
		Content: map[string]string{
			"/etc/group":  "root:x:0:\nnobody:x:65534:\n",
			"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		},
	}, nil
}

// WriteImages writes each image as an archive into dir and returns the files.
func WriteImages(dir string, images []Image) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make image folder: %w", err)
	}
	var files []string
	for _, image := range images {
		target := filepath.Join(dir, fileName(image.Name))
		if err := writeImage(target, image); err != nil {
			return nil, err
		}
		files = append(files, target)
	}
	return files, nil
}

func writeImage(target string, image Image) error {
	temp, err := os.CreateTemp(filepath.Dir(target), ".image")
	if err != nil {
		return fmt.Errorf("write image %s: %w", image.Name, err)
	}
	defer os.Remove(temp.Name())
	err = image.WriteTar(temp)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("write image %s: %w", image.Name, err)
	}
	return nil
}

func fileName(image string) string {
	return strings.NewReplacer("/", "_", ":", "_").Replace(image) + ".tar"
}
