// Devices is a device plugin for tests: its devices do nothing, and each is in a NUMA zone.
//
//	devices RESOURCE ID:ZONE ...
//
// It runs until it is ended, and registers again with a kubelet that restarts.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func device(given string) *pluginapi.Device {
	id, zone, _ := strings.Cut(given, ":")
	number, err := strconv.ParseInt(zone, 10, 64)
	check(err)
	nodes := []*pluginapi.NUMANode{{ID: number}}
	return &pluginapi.Device{ID: id, Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: nodes}}
}

// allocate gives each container its devices, and nothing of them to mount.
func allocate(asked *pluginapi.AllocateRequest, _ map[string]*pluginapi.Device) (*pluginapi.AllocateResponse, error) {
	var given pluginapi.AllocateResponse
	for range asked.ContainerRequests {
		given.ContainerResponses = append(given.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return &given, nil
}

func main() {
	resource := os.Args[1]
	var devices []*pluginapi.Device
	for _, given := range os.Args[2:] {
		devices = append(devices, device(given))
	}
	socket := filepath.Join(pluginapi.DevicePluginPath, strings.ReplaceAll(resource, "/", "_")+".sock")
	stub := plugin.NewDevicePluginStub(devices, socket, resource, false, false)
	stub.SetAllocFunc(allocate)
	check(stub.Start())
	check(stub.Register(pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath))
	stub.Watch(pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath)
}
