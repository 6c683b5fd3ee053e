package system_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/system"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a machine: its files, and what cAdvisor says of it. It may change while the plugin is in use.
type host struct {
	mu       sync.Mutex
	files    fs.FS
	info     *cadvisorapi.MachineInfo
	infoErr  error
	cpuFlags bool
	opened   int
}

func (h *host) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// Open implements fs.FS.
func (h *host) Open(name string) (fs.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened++
	return h.files.Open(name)
}

func (h *host) plugin() *system.Plugin {
	return system.New(system.Config{
		Root: h, Clock: clock.RealClock{},
		MachineInfo: func() (*cadvisorapi.MachineInfo, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.info, h.infoErr
		},
		CPUFlags: func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.cpuFlags
		},
	})
}

// reported returns the properties as text, by name. It fails if the merge refuses anything.
func reported(t *testing.T, contents []merge.Content) map[string]string {
	t.Helper()
	if err := merge.Validate(contents); err != nil {
		t.Fatal(err)
	}
	result := merge.Merge([]merge.Report{{Plugin: system.Name, Contents: contents}}, merge.Options{})
	if len(result.Refusals) > 0 || len(result.Conflicts) > 0 {
		t.Fatalf("refused %v, conflicts %v", result.Refusals, result.Conflicts)
	}
	got := map[string]string{}
	for _, p := range result.CustomNodeResource.Spec.NodeResourceProperties {
		got[p.PropertyName] = text(&p)
	}
	return got
}

func text(p *node.Property) string {
	if p.PropertyQuantity != nil {
		return p.PropertyQuantity.String()
	}
	return strings.Join(p.PropertyValues, " ")
}

func poll(t *testing.T, h *host) map[string]string {
	t.Helper()
	contents, err := h.plugin().GetReportContent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return reported(t, contents)
}

func machineInfo(numa, cpus int, memory uint64) *cadvisorapi.MachineInfo {
	return &cadvisorapi.MachineInfo{Topology: make([]cadvisorapi.Node, numa), NumCores: cpus, MemoryCapacity: memory}
}

func files(contents map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, content := range contents {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return tree
}

func TestRecordedVirtualMachine(t *testing.T) {
	h := &host{files: os.DirFS("testdata/virtual-machine"), info: machineInfo(1, 2, 16607444<<10)}
	want := map[string]string{
		"numa": "1", "cpu": "2", "memory": "16607444Ki", "cis": "avx2 avx512", "is_vm": "true",
		"topology": `{"Iface":"eth0","Enable":true}`,
	}
	if diff := cmp.Diff(want, poll(t, h)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	h.cpuFlags = true
	flags := strings.Split(poll(t, h)["cpu_flags"], ",")
	if len(flags) != 106 || flags[0] != "3dnowprefetch" {
		t.Errorf("%d flags: %v", len(flags), flags)
	}
}

// server is a machine with two sockets, made by hand.
func server() map[string]string {
	return map[string]string{
		"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx avx2 avx512f\nbugs\t\t: flags\n\n" +
			"processor\t: 1\nflags\t\t: avx2 fpu avx\n",
		"sys/class/net/bonding_masters":       "bond0\n",
		"sys/class/net/bond0/bonding/mode":    "802.3ad 4\n",
		"sys/class/net/bond0/operstate":       "up\n",
		"sys/class/net/bond0/speed":           "50000\n",
		"sys/class/net/ens1/device/numa_node": "0\n",
		"sys/class/net/ens1/operstate":        "up\n",
		"sys/class/net/ens1/speed":            "25000\n",
		"sys/class/net/ens2/device/numa_node": "1\n",
		"sys/class/net/ens2/operstate":        "down\n",
		"sys/class/net/ens2/speed":            "100000\n",
		"sys/class/net/veth1/operstate":       "up\n",
		"sys/class/net/veth1/speed":           "1000000\n",
		"sys/class/dmi/id/sys_vendor":         "Dell Inc.\n",
		"sys/class/dmi/id/product_name":       "PowerEdge\n",
	}
}

func TestServer(t *testing.T) {
	h := &host{files: files(server()), info: machineInfo(2, 96, 384<<30), cpuFlags: true}
	want := map[string]string{
		"numa": "2", "cpu": "96", "memory": "384Gi", "nbw": "50k", "cis": "avx2", "cpu_flags": "avx,avx2,fpu",
		"is_vm": "false",
		"topology": `{"Iface":"bond0","Speed":50000,"Enable":true} ` +
			`{"Iface":"ens1","Speed":25000,"NumaNode":0,"Enable":true} ` +
			`{"Iface":"ens2","Speed":100000,"NumaNode":1,"Enable":false}`,
	}
	if diff := cmp.Diff(want, poll(t, h)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What cannot be read is absent, never -1, and takes nothing else with it.
func TestWhatCannotBeReadIsAbsent(t *testing.T) {
	all := []string{"cis", "cpu", "is_vm", "memory", "nbw", "numa", "topology"}
	ofMachineInfo := []string{"cpu", "memory", "numa"}
	info := func(info *cadvisorapi.MachineInfo, err error) func(*host, map[string]string) {
		return func(h *host, _ map[string]string) { h.info, h.infoErr = info, err }
	}
	cpuInfo := func(content string) func(*host, map[string]string) {
		return func(_ *host, files map[string]string) { files["proc/cpuinfo"] = content }
	}
	for name, c := range map[string]struct {
		change func(*host, map[string]string)
		absent []string
	}{
		"nothing":          {func(*host, map[string]string) {}, nil},
		"MachineInfo":      {info(machineInfo(2, 96, 1), errors.New("no")), ofMachineInfo},
		"nil MachineInfo":  {info(nil, nil), ofMachineInfo},
		"zeroes":           {info(machineInfo(0, 0, 0), nil), ofMachineInfo},
		"negative numbers": {info(machineInfo(0, -1, 1<<63), nil), ofMachineInfo},
		"cpuinfo": {
			func(_ *host, f map[string]string) { delete(f, "proc/cpuinfo") }, []string{"cis", "is_vm"},
		},
		"empty cpuinfo": {cpuInfo("processor : 0\n"), []string{"cis", "is_vm"}},
		"network": {
			func(_ *host, f map[string]string) {
				maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, "sys/class/net/") })
			},
			[]string{"nbw", "topology"},
		},
		"speeds": {
			func(_ *host, f map[string]string) {
				f["sys/class/net/bond0/speed"], f["sys/class/net/ens1/speed"] = "-1\n", "4294967295\n"
			},
			[]string{"nbw"},
		},
		"no speeds": {
			func(_ *host, f map[string]string) {
				maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasSuffix(name, "/speed") })
			},
			[]string{"nbw"},
		},
		"everything": {
			func(h *host, f map[string]string) {
				h.info = nil
				clear(f)
			},
			all,
		},
	} {
		tree := server()
		h := &host{info: machineInfo(2, 96, 384<<30)}
		c.change(h, tree)
		h.files = files(tree)
		contents, err := h.plugin().GetReportContent(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if data := string(contents[0].Fields[0].Value); strings.Contains(data, "-") {
			t.Errorf("%s: a negative number in %s", name, data)
		}
		got := reported(t, contents)
		want := map[string]bool{}
		for _, property := range all {
			want[property] = true
		}
		for _, property := range c.absent {
			delete(want, property)
		}
		for _, property := range all {
			if _, there := got[property]; there != want[property] {
				t.Errorf("%s: %s is reported: %t", name, property, there)
			}
		}
	}
}

func TestIsVM(t *testing.T) {
	const arm = "processor\t: 0\nFeatures\t: fp asimd hypervisor\n"
	for _, c := range []struct{ cpuInfo, vendor, product, want string }{
		{"flags : fpu hypervisor\n", "", "", "true"},
		{"flags : fpu\n", "QEMU", "", "false"},
		{arm, "QEMU", "QEMU Virtual Machine", "true"},
		{arm, "Amazon EC2", "c7g.large", "true"},
		{arm, "Amazon EC2", "c7g.metal", ""},
		{arm, "Amazon EC2", "", ""},
		{arm, "Microsoft Corporation", "Virtual Machine", "true"},
		{arm, "Microsoft Corporation", "Surface", ""},
		{arm, "Google", "Google Compute Engine", "true"},
		{arm, "", "KVM Virtual Machine", "true"},
		{arm, "Ampere", "Altra", ""},
		{"", "VMware, Inc.", "", "true"},
		{"", "", "", ""},
	} {
		h := &host{files: files(map[string]string{
			"proc/cpuinfo": c.cpuInfo, "sys/class/dmi/id/sys_vendor": c.vendor + "\n",
			"sys/class/dmi/id/product_name": c.product,
		})}
		if got := poll(t, h)["is_vm"]; got != c.want {
			t.Errorf("%q, %s, %s: is_vm is %q, want %q", c.cpuInfo, c.vendor, c.product, got, c.want)
		}
	}
}

// A machine with very many interfaces and flags stays within the limits of an answer.
func TestLimits(t *testing.T) {
	tree := server()
	for i := range 2000 {
		tree[fmt.Sprintf("sys/class/net/enp%dvirtual/device/vendor", i)] = "x"
	}
	tree["proc/cpuinfo"] = "flags : " + strings.Repeat("flag ", 100_000) + "\n"
	h := &host{files: files(tree), cpuFlags: true}
	if got := poll(t, h)["cpu_flags"]; got != "flag" {
		t.Errorf("flags %q", got)
	}
}

// The stream sends once, and again within 30 s of a change; the files are read no more often than that, however often
// the plugin is polled.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{files: files(server()), info: machineInfo(2, 96, 384<<30)}
		p := h.plugin()
		ctx, cancel := context.WithCancel(t.Context())
		var sent [][]merge.Content
		ended := make(chan error)
		go func() { ended <- p.ListAndWatch(ctx, func(c []merge.Content) { sent = append(sent, c) }) }()
		synctest.Wait()
		if len(sent) != 1 {
			t.Fatalf("sent %d answers at the begin", len(sent))
		}
		one := h.opened
		for range 120 {
			if _, err := p.GetReportContent(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(sent) != 1 || h.opened > 5*one {
			t.Errorf("sent %d answers and opened %d files in 2 min, %d at the begin", len(sent), h.opened, one)
		}
		h.change(func() {
			tree := server()
			tree["sys/class/net/ens2/operstate"] = "up\n"
			h.files = files(tree)
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(sent) != 2 || reported(t, sent[1])["nbw"] != "100k" {
			t.Errorf("%d answers after a change", len(sent))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// The answer is the same bytes each time, and names only the field that it is about.
func TestContent(t *testing.T) {
	h := &host{files: files(server()), info: machineInfo(2, 96, 384<<30)}
	var before []byte
	for range 10 {
		contents, err := h.plugin().GetReportContent(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(contents) != 1 || contents[0].Kind != node.GroupVersionKind || len(contents[0].Fields) != 1 {
			t.Fatalf("contents %+v", contents)
		}
		field := contents[0].Fields[0]
		if field.Part != merge.Spec || field.Name != "NodeResourceProperties" || !json.Valid(field.Value) {
			t.Errorf("field %+v", field)
		}
		if before != nil && string(before) != string(field.Value) {
			t.Errorf("%s, then %s", before, field.Value)
		}
		before = field.Value
	}
}
