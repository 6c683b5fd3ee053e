package system_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/system"
)

// blockedFS opens the speed of an interface only after released is closed.
type blockedFS struct {
	fs.FS
	released chan struct{}
	opened   *int
}

func (b blockedFS) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "ens1/speed") {
		*b.opened++
		<-b.released
	}
	return b.FS.Open(name)
}

// A file that blocks, such as the speed of an interface whose hardware does not respond, holds up neither the end of a
// poll nor that of the stream. There is one reading under way.
func TestFileThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, released := 0, make(chan struct{})
		p := system.New(system.Config{
			Root: blockedFS{files(server()), released, &opened}, Clock: clock.RealClock{},
			MachineInfo: func() (*cadvisorapi.MachineInfo, error) { return machineInfo(2, 96, 384<<30), nil },
			CPUFlags:    func() bool { return false },
		})
		ctx, cancel := context.WithCancel(t.Context())
		polled, ended := make(chan error, 3), make(chan error, 1)
		for range cap(polled) {
			go func() {
				_, err := p.GetReportContent(ctx)
				polled <- err
			}()
		}
		go func() { ended <- p.ListAndWatch(ctx, func([]merge.Content) {}) }()
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		if len(polled) != cap(polled) || len(ended) != 1 || opened != 1 {
			t.Errorf("%d polls have ended, %d streams; %d files are open", len(polled), len(ended), opened)
		}
		close(released)
		for range cap(polled) {
			if err := <-polled; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		contents, err := p.GetReportContent(t.Context())
		if err != nil || opened != 2 { // that reading began more than a period ago
			t.Fatalf("afterwards %v, %d readings", err, opened)
		}
		if got := reported(t, contents)["nbw"]; got != "50k" {
			t.Errorf("nbw is %s", got)
		}
	})
}

// A panic while the machine is read is an error of the plugin.
func TestPanicOfAReading(t *testing.T) {
	p := system.New(system.Config{
		Root: files(server()), Clock: clock.RealClock{},
		MachineInfo: func() (*cadvisorapi.MachineInfo, error) { panic("broken") },
		CPUFlags:    func() bool { return false },
	})
	if _, err := p.GetReportContent(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
}
