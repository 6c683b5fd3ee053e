package conformance

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	utilimage "k8s.io/kubernetes/test/utils/image"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// userlandPackages are the programs that the suites expect in the image of agnhost.
const userlandPackages = "bash,curl,netcat-openbsd,iproute2,bind9-dnsutils,iperf,util-linux,ca-certificates,procps"

// images builds the images of the upstream suites from files of this machine.
type images struct {
	builder build.Builder
	// dir is the directory of the images, userland the root directory of a Debian.
	dir      string
	userland string
	log      io.Writer
}

// write writes every image that does not exist yet.
func (i images) write(ctx context.Context) error {
	if err := i.makeUserland(ctx); err != nil {
		return err
	}
	list, err := i.list(ctx)
	if err != nil {
		return err
	}
	for _, image := range list {
		dir := filepath.Join(i.dir, cluster.ImageDirName(image.Name))
		if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
			continue
		}
		fmt.Fprintf(i.log, "  image %s\n", image.Name)
		if err := image.WriteDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// list returns the images that most specs use. Those of nginx are replaced, since the suites only need a web server on
// port 80, and so is that of the kitten, which is mounted as a volume: two of its files must have the same content as
// upstream.
func (i images) list(ctx context.Context) ([]build.Image, error) {
	common, err := i.builder.Images()
	if err != nil {
		return nil, err
	}
	busybox := common[len(common)-1]
	name := utilimage.GetE2EImage
	base := func(name string, files map[string]string, cmd ...string) build.Image {
		image := busybox
		image.Name, image.Cmd = name, cmd
		image.Files = maps.Clone(busybox.Files)
		maps.Copy(image.Files, files)
		return image
	}
	nonRoot := base(name(utilimage.NonRoot), nil, "sh")
	nonRoot.User = "1234"
	web := []string{"httpd", "-f", "-p", "80"}
	kitten := build.Image{Name: name(utilimage.Kitten), Content: map[string]string{
		"/data.json": `{"image": "kitten.jpg"}` + "\n", "/etc/os-release": "NAME=\"Alpine Linux\"\n",
	}}
	list := []build.Image{
		{
			Name: name(utilimage.Pause), Entrypoint: []string{"/pause"},
			Files: map[string]string{"/pause": i.builder.Path("pause")},
		},
		base(name(utilimage.BusyBox), map[string]string{"/bin/nmeter": i.builder.Path("nmeter")}, "sh"),
		base(ofMemoryQoS(name(utilimage.BusyBox)), nil, "sh"),
		base(name(utilimage.Nonewprivs), map[string]string{"/usr/local/bin/nnp": i.builder.Path("nonewprivs")}, "nnp"),
		nonRoot,
		kitten,
		base(name(utilimage.Nginx), nil, web...),
		base(name(utilimage.NginxNew), nil, web...),
	}
	certificate, err := i.certificate(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range []utilimage.ImageID{utilimage.Agnhost, utilimage.AgnhostPrev, utilimage.GlibcDnsTesting} {
		list = append(list, i.agnhost(name(id), certificate))
	}
	return list, nil
}

// ofMemoryQoS returns the name of the image that the specs of memory QoS use (e2e_node/memory_qos_test.go): another tag
// than that of all others.
func ofMemoryQoS(busybox string) string {
	return busybox[:strings.LastIndexByte(busybox, ':')] + ":1.36.1-1"
}

// certificate returns upstream's certificate of localhost and its key, which agnhost serves, by their paths in the
// image.
func (i images) certificate(ctx context.Context) (map[string]string, error) {
	const source = "k8s.io/kubernetes/test/images/agnhost/porter"
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", source)
	cmd.Dir = filepath.Join(i.builder.Root, build.NodeSuite().Module)
	dir, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the source of %s: %w", source, err)
	}
	files := map[string]string{}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		files["/"+name] = filepath.Join(strings.TrimSpace(string(dir)), name)
	}
	return files, nil
}

// agnhost is the suites' test server, in a glibc userland. Upstream's image has the tools of busybox too, of which
// specs use nmeter.
func (i images) agnhost(name string, certificate map[string]string) build.Image {
	files := map[string]string{"/agnhost": i.builder.Path("agnhost"), "/usr/bin/nmeter": i.builder.Path("nmeter")}
	maps.Copy(files, certificate)
	return build.Image{
		Name:       name,
		Root:       i.userland,
		Entrypoint: []string{"/agnhost"},
		Cmd:        []string{"pause"},
		Files:      files,
		Links:      map[string]string{"/agnhost-2": "agnhost"},
	}
}

// makeUserland unpacks a small Debian, with the users that specs need.
func (i images) makeUserland(ctx context.Context) error {
	done := i.userland + ".done"
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := build.InstallPackage(ctx, i.log, "debootstrap", "debootstrap"); err != nil {
		return err
	}
	fmt.Fprintln(i.log, "Unpacking a Debian userland for the test images (about two minutes).")
	if err := host.RemoveTree(i.userland); err != nil {
		return fmt.Errorf("remove unfinished userland: %w", err)
	}
	const users = "useradd -u 1000 -m user-defined-in-image; groupadd -g 50000 group-defined-in-image; " +
		"usermod -aG group-defined-in-image user-defined-in-image; mkdir -p /uploads"
	for _, args := range [][]string{
		{"debootstrap", "--variant=minbase", "--include=" + userlandPackages, "bookworm", i.userland},
		{"chroot", i.userland, "sh", "-c", users},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return os.WriteFile(done, nil, 0o644)
}
