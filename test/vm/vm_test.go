package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func testConfig(t *testing.T) Config {
	t.Helper()
	layout := NewLayout(t.TempDir())
	cert, key := layout.KubeletPair()
	for _, name := range []string{layout.KubeletConfig(), layout.Authority(), cert, key} {
		if err := (file{[]byte(filepath.Base(name)), 0o600}).write(name); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Layout: layout}
}

func TestLinksDoNotReplaceFilesOfTheImage(t *testing.T) {
	tree := t.TempDir()
	if err := addGuest(tree); err != nil {
		t.Fatal(err)
	}
	for name, target := range links {
		if got, err := os.Readlink(filepath.Join(tree, name)); err != nil || got != target {
			t.Errorf("%s is a link to %q (%v), want %q", name, got, err, target)
		}
		if strings.HasPrefix(target, "/usr/lib/systemd/system/node-") || strings.HasSuffix(target, "/kubelet.service") {
			if _, err := os.Stat(filepath.Join(tree, target)); err != nil {
				t.Errorf("the link %s: %v", name, err)
			}
		}
	}
	info, err := os.Stat(filepath.Join(tree, "usr/sbin/node-init"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the first process cannot be executed: %v, %v", info, err)
	}
}

func TestDigestFollowsTextsAndFiles(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	digest := func(content string, texts ...string) string {
		if err := os.WriteFile(program, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := sum(texts, []string{program})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := digest("one", "a", "b")
	if digest("one", "a", "b") != first {
		t.Error("the digest of the same is another")
	}
	for _, other := range []string{digest("two", "a", "b"), digest("one", "ab"), digest("one", "a", "c")} {
		if other == first {
			t.Error("the digest does not follow its input")
		}
	}
	if _, err := sum(nil, []string{program + ".none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("digest of a missing file: %v", err)
	}
}

func TestCgroupsOfContainerdAndTheKubelet(t *testing.T) {
	for _, test := range []struct {
		layout       Cgroups
		driver, root string
		systemd      bool
		container    string
	}{
		{
			CgroupsSystemd, "systemd", "", true,
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-1.scope",
		},
		{CgroupsFiles, "cgroupfs", "", false, "/kubepods/besteffort/poda-b/1"},
		{
			CgroupsNested, "systemd", "/kubelet", true,
			"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-poda_b.slice/" +
				"cri-containerd-1.scope",
		},
	} {
		config := testConfig(t)
		config.Cgroups = test.layout
		files, err := nodeFiles(config, 1)
		if err != nil {
			t.Fatal(err)
		}
		var settings kubeletv1beta1.KubeletConfiguration
		if err := yaml.UnmarshalStrict(files["/var/lib/kubelet/config.yaml"].data, &settings); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("SystemdCgroup = %v\n", test.systemd)
		if settings.CgroupDriver != test.driver || settings.CgroupRoot != test.root ||
			!bytes.Contains(files["/etc/containerd/config.toml"].data, []byte(line)) {
			t.Errorf("%s: the kubelet has the driver %s and the root %q, and containerd\n%s", test.layout,
				settings.CgroupDriver, settings.CgroupRoot, files["/etc/containerd/config.toml"].data)
		}
		if got := test.layout.container("a-b", "1"); got != test.container {
			t.Errorf("%s: a container's control group is %s, want %s", test.layout, got, test.container)
		}
	}
}

func TestParseCgroups(t *testing.T) {
	for name, want := range map[string]Cgroups{
		"": CgroupsSystemd, "systemd": CgroupsSystemd, "cgroupfs": CgroupsFiles, "cgroup-root": CgroupsNested,
	} {
		if got, err := ParseCgroups(name); err != nil || got != want {
			t.Errorf("%q is the layout %q (%v)", name, got, err)
		}
	}
	if _, err := ParseCgroups("other"); err == nil {
		t.Error("a layout that does not exist was accepted")
	}
}

func TestStockNodeHasNoDropIn(t *testing.T) {
	config := testConfig(t)
	for _, stock := range []bool{true, false} {
		config.Stock = stock
		files, err := nodeFiles(config, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := files[ownDropIn]; found == stock {
			t.Errorf("stock %v: our drop-in is there: %v", stock, found)
		}
		if !strings.Contains(string(files[keptDropIn].data), "WatchdogSec=30\n") {
			t.Errorf("the drop-in is\n%s", files[keptDropIn].data)
		}
	}
}

func TestTuneChangesTheKubeletsConfiguration(t *testing.T) {
	config := testConfig(t)
	config.Tune = func(settings *kubeletv1beta1.KubeletConfiguration) { settings.MaxPods = 7 }
	data, err := kubeletFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "maxPods: 7\n") {
		t.Errorf("the configuration is\n%s", data)
	}
}

func TestTimesOfSystemdAreLongerUnderEmulation(t *testing.T) {
	got := string(ownDropInFile(emulationFactor).data)
	if !strings.Contains(got, "WatchdogSec=180\n") || !strings.HasSuffix(got, monitorYields) {
		t.Errorf("the drop-in is\n%s", got)
	}
	if got := string(ownDropInFile(1).data); strings.Contains(got, monitorYields) {
		t.Errorf("without emulation the drop-in is\n%s", got)
	}
}

func TestMachineReachesNothingButItsNetwork(t *testing.T) {
	layout := NewLayout("/repository")
	net := newNetwork(layout)
	command := machineCommand(Config{Layout: layout}, net, Image{Disk: "/disk", Kernel: "/kernel"}, "/node", false)
	text := command.Path + " " + strings.Join(command.Args, " ")
	for _, want := range []string{
		"nsenter --net=" + net.file() + " -- qemu-system-x86_64 ",
		"file=/disk,format=raw,if=none,id=root,cache=unsafe,snapshot=on",
		"file=/node,format=raw,if=none,id=node,cache=unsafe,readonly=on", "-netdev tap,",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Count(text, "-netdev") != 1 || strings.Contains(text, "-nic") {
		t.Errorf("the machine has another network: %s", text)
	}
	if other := newNetwork(NewLayout("/other")); other.name == net.name {
		t.Errorf("two repositories share the network %s", other.name)
	}
}

func TestConsoleIsCopiedToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	var out bytes.Buffer
	stop := followConsole(path, &out)
	if err := os.WriteFile(path, []byte("first\nlast\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := out.String(); got != "first\nlast\n" {
		t.Errorf("copied %q", got)
	}
}

func TestCleanOfNothingDoesNothing(t *testing.T) {
	var log bytes.Buffer
	if err := Clean(t.Context(), NewLayout(t.TempDir()), &log); err != nil || log.Len() > 0 {
		t.Errorf("clean: %v, %q", err, log.String())
	}
}

func TestAMachineThatIsInUseIsNotReplaced(t *testing.T) {
	config := Config{Layout: NewLayout(t.TempDir())}
	lock, err := lockLayout(config.Layout)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), config, Image{})
	if err == nil || !strings.Contains(err.Error(), "another program uses") {
		t.Errorf("a second machine: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err = lockLayout(config.Layout)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	lock.Close()
}

func TestNoMachineIsNoNode(t *testing.T) {
	if _, err := Open(Config{Layout: NewLayout(t.TempDir())}); err == nil {
		t.Error("a node was opened where none runs")
	}
}
