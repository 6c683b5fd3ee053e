package systembus

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

const (
	systemdName  = "org.freedesktop.systemd1"
	systemdPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdIface = systemdName + ".Manager"
)

// Service is what a unit starts and stops. It must be safe for concurrent use.
type Service interface {
	// PID returns the process of the service, 0 if there is none.
	PID() (int, error)
	// Start returns when the service can be used. It does nothing if the service runs.
	Start(ctx context.Context) error
	// Stop returns when the process has ended. The service stays stopped until the next Start.
	Stop(ctx context.Context) error
}

// manager is systemd as far as the upstream node suite needs it: it finds the unit of a process, starts it and stops
// it.
type manager struct {
	// units are the services by unit name.
	units map[string]Service
	emit  func(path dbus.ObjectPath, name string, values ...any) error
	log   io.Writer
	jobs  sync.WaitGroup

	mu sync.Mutex
	// last is the number of the newest job.
	last uint32
}

// ServeSystemd serves a manager of those units, by their names, on the bus (org.freedesktop.systemd1(5)). Its jobs end
// with ctx.
func (b *Bus) ServeSystemd(ctx context.Context, units map[string]Service) error {
	ctx, cancel := context.WithCancel(ctx)
	m := &manager{units: units, emit: b.connection.Emit, log: b.log}
	methods := map[string]any{
		"GetUnitByPID": m.unitByPID,
		"StartUnit": func(name, mode string) (dbus.ObjectPath, *dbus.Error) {
			return m.enqueue(ctx, name, Service.Start)
		},
		"StopUnit": func(name, mode string) (dbus.ObjectPath, *dbus.Error) {
			return m.enqueue(ctx, name, Service.Stop)
		},
	}
	b.ends = append(b.ends, func(context.Context) error {
		cancel()
		m.jobs.Wait()
		return nil
	})
	if err := b.connection.ExportMethodTable(methods, systemdPath, systemdIface); err != nil {
		return fmt.Errorf("serve systemd: %w", err)
	}
	return b.own(systemdName)
}

// unitByPID returns the object of the unit to which the process belongs.
func (m *manager) unitByPID(pid uint32) (dbus.ObjectPath, *dbus.Error) {
	for _, name := range slices.Sorted(maps.Keys(m.units)) {
		own, err := m.units[name].PID()
		if err != nil {
			return "", dbus.MakeFailedError(err)
		}
		if own > 0 && uint32(own) == pid {
			return systemdPath + "/unit/" + dbus.ObjectPath(systemd.PathBusEscape(name)), nil
		}
	}
	return "", dbus.NewError(systemdName+".NoUnitForPID",
		[]any{fmt.Sprintf("PID %d does not belong to any loaded unit.", pid)})
}

// enqueue returns the object of a job that does the work. A signal reports how the job ended.
func (m *manager) enqueue(
	ctx context.Context, name string, work func(Service, context.Context) error,
) (dbus.ObjectPath, *dbus.Error) {
	unit, known := m.units[name]
	if !known {
		return "", dbus.NewError(systemdName+".NoSuchUnit", []any{fmt.Sprintf("Unit %s not found.", name)})
	}
	m.mu.Lock()
	m.last++
	id := m.last
	m.mu.Unlock()
	job := dbus.ObjectPath(fmt.Sprintf("%s/job/%d", systemdPath, id))
	m.jobs.Go(func() {
		result := "done"
		if err := work(unit, ctx); err != nil {
			fmt.Fprintf(m.log, "  unit %s: %v\n", name, err)
			result = "failed"
		}
		if err := m.emit(systemdPath, systemdIface+".JobRemoved", id, job, name, result); err != nil {
			fmt.Fprintf(m.log, "  unit %s: announce that its job is %s: %v\n", name, result, err)
		}
	})
	return job, nil
}
