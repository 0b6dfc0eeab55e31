// Command mpi-operator runs the operator's controller without its leader election and its health check, whose port is
// fixed and open to every network.
package main

import (
	"context"
	"flag"
	"os/signal"
	"syscall"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpijobs "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	given := options.NewServerOption()
	given.AddFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", given.Kubeconfig)
	utilruntime.Must(err)
	config.QPS, config.Burst = float32(given.QPS), given.Burst
	utilruntime.Must(mpischeme.AddToScheme(scheme.Scheme)) // for its Events
	kubernetesClient, mpiClient := kubernetes.NewForConfigOrDie(config), mpijobs.NewForConfigOrDie(config)
	kube := informers.NewSharedInformerFactory(kubernetesClient, 0)
	mpi := mpiinformers.NewSharedInformerFactory(mpiClient, 0)
	core := kube.Core().V1()
	made, err := controller.NewMPIJobController(ctx, kubernetesClient, mpiClient, nil, nil,
		core.ConfigMaps(), core.Secrets(), core.Services(), kube.Batch().V1().Jobs(), core.Pods(),
		kube.Scheduling().V1().PriorityClasses(), mpi.Kubeflow().V2beta1().MPIJobs(), given)
	utilruntime.Must(err)
	kube.Start(ctx.Done())
	mpi.Start(ctx.Done())
	utilruntime.Must(made.Run(given.Threadiness, ctx.Done()))
}
